"""Names a corpus whose words cannot be told apart, when its index is built."""

import unicodedata


class LongWords:
    """Counts letters in words too long to be words, which a text in an unknown script without blanks has."""

    LONGEST = 40  # letters of a word
    SHARE = 0.2  # share of the letters of a corpus above which `warning` speaks

    def __init__(self) -> None:
        self._letters = self._long = 0
        self._example = ""

    def add(self, found: list[str]) -> list[str]:
        """Count the words of a passage; returns them."""
        for word in found:
            self._letters += len(word)
            if len(word) > self.LONGEST:
                self._long += len(word)
                self._example = self._example or word
        return found

    def warning(self, where: str) -> str:
        """A sentence, if a large share of the letters stands in such words; else an empty text."""
        if self._long <= self.SHARE * self._letters:
            return ""
        script = unicodedata.name(self._example[0], "an unknown script").split()[0].capitalize()
        return (
            f"{self._long / self._letters:.0%} of the letters of {where} stand in words of more than {self.LONGEST}"
            f" letters, such as {self._example[:20]!r}... (script: {script}): BM25 finds such a word only as a whole."
            " Put blanks between the words of the corpus, or use the backend faiss or http"
        )
