"""The text of a message whose content is a text or a list of parts, as OpenAI's protocol and its dialects write it."""

from typing import Any

TEXT_PARTS = ("text", "input_text", "output_text")  # types of parts whose field `text` is a text of the message
THOUGHTS = ("thinking", "reasoning", "redacted_thinking")  # types of parts that no model reads again


def text_of_content(content: Any, where: str) -> str:
    """The text of a message's content: a text, None (no text), or a list of parts, whose texts are joined.

    Reasoning of earlier answers is left out. A refusal counts as text.

    Args:
        content: the content.
        where: names the message in the error.

    Raises:
        ValueError: the content is of another type, or has a part that is no text, such as an image.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        raise ValueError(f"{where} is neither a text nor a list of parts")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("refusal" if kind == "refusal" and "refusal" in part else "text") if kind else None
        if kind in THOUGHTS:
            continue
        if kind not in (*TEXT_PARTS, "refusal") or not isinstance(text or "", str):
            raise ValueError(f"{where} has a part of type {kind!r:.50}: this model reads text only")
        texts.append(text or "")
    return "".join(texts)
