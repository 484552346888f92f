"""Text in messages, quoted as Go's %q quotes it."""

from __future__ import annotations


def quote(text: str) -> str:
    """Text as Go's %q prints it. Bytes that are not UTF-8 (surrogates, as Python reads headers) become `\\xff`."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(_quoted_character(character) for character in text)}"'


_ESCAPES = {'"': '\\"', "\\": "\\\\"} | dict(
    zip("\a\b\f\n\r\t\v", ("\\a", "\\b", "\\f", "\\n", "\\r", "\\t", "\\v"), strict=True)
)


def _quoted_character(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
