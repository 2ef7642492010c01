"""Programs on text."""

# mypy: ignore-errors
# ruff: noqa: SIM102  written as people write them, so that there is something to get wrong


def slugify(title):
    """A title as lower-case words joined by single hyphens; everything but letters and digits separates words."""
    words = []
    word = ""
    for character in title.lower():
        if character.isalnum():
            word += character
        elif word:
            words.append(word)
            word = ""
    if word:
        words.append(word)
    return "-".join(words)


def caesar(text, shift):
    """Letters moved by `shift` places in the alphabet, around its end; the rest stays."""
    moved = []
    for character in text:
        if character.isalpha():
            base = ord("a") if character.islower() else ord("A")
            moved.append(chr((ord(character) - base + shift) % 26 + base))
        else:
            moved.append(character)
    return "".join(moved)


def run_lengths(text):
    """Runs of equal characters as (character, length) pairs."""
    runs = []
    for character in text:
        if runs and runs[-1][0] == character:
            runs[-1] = (character, runs[-1][1] + 1)
        else:
            runs.append((character, 1))
    return runs


def is_palindrome(text):
    """Does the text read the same backwards, letters and digits alone, case aside?"""
    kept = [character.lower() for character in text if character.isalnum()]
    left, right = 0, len(kept) - 1
    while left < right:
        if kept[left] != kept[right]:
            return False
        left += 1
        right -= 1
    return True


def wrap(text, width):
    """Words filled into lines of at most `width` characters; a longer word stands alone."""
    lines = []
    line = ""
    for word in text.split():
        if not line:
            line = word
        elif len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            lines.append(line)
            line = word
    if line:
        lines.append(line)
    return lines


def common_prefix(words):
    """The longest text all words begin with."""
    if not words:
        return ""
    first = min(words)
    last = max(words)
    length = 0
    while length < len(first) and first[length] == last[length]:
        length += 1
    return first[:length]


def edit_distance(one, other):
    """How many insertions, deletions and substitutions turn one text into the other, at least."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        previous = row[0]
        row[0] = i
        for j, b in enumerate(other, 1):
            cost = 0 if a == b else 1
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + cost)
    return row[-1]


def balanced(text):
    """Are the brackets ()[]{} of a text closed in the right order?"""
    pairs = {")": "(", "]": "[", "}": "{"}
    open_ones = []
    for character in text:
        if character in "([{":
            open_ones.append(character)
        elif character in pairs:
            if not open_ones or open_ones.pop() != pairs[character]:
                return False
    return not open_ones


def title_case(text):
    """Every word capitalised, but small words inside the title."""
    small = {"a", "an", "and", "of", "the", "in", "on"}
    words = text.lower().split()
    result = []
    for position, word in enumerate(words):
        if position > 0 and position < len(words) - 1 and word in small:
            result.append(word)
        else:
            result.append(word[0].upper() + word[1:])
    return " ".join(result)


def count_words(text):
    """How often each word occurs, most frequent first, equally frequent ones in alphabetical order."""
    counts = {}
    for word in text.lower().split():
        word = word.strip(".,;:!?")
        if word:
            counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def parse_pairs(text):
    """A text such as "a=1; b=two" as a dict, numbers as int."""
    result = {}
    for part in text.split(";"):
        if "=" not in part:
            continue
        key, value = part.split("=", 1)
        value = value.strip()
        negative = value.startswith("-")
        digits = value[1:] if negative else value
        if digits.isdigit():
            value = -int(digits) if negative else int(digits)
        result[key.strip()] = value
    return result


def roman(number):
    """A number from 1 to 3999 in Roman numerals."""
    values = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
              (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]  # fmt: skip
    text = ""
    for value, letters in values:
        while number >= value:
            text += letters
            number -= value
    return text
