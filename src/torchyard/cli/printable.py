"""Texts of manifests and programs on a terminal: no control character of them reaches it."""

from __future__ import annotations


def mask_unprintable(text: str) -> str:
    """The text with a question mark for each character that is not printable, line breaks included."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)
