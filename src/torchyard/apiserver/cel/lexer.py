"""The lexer: from an expression's text to its tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from torchyard.apiserver.cel.errors import CompileError, Issue


class CelToken(NamedTuple):
    kind: str  # int, uint, float, string, bytes, ident, quoted-ident, end, or the symbol itself
    text: str
    offset: int
    value: object = None


_QUOTES = r'"""|' + r"'''|\"|'"
_SPACE = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)*")
_FLOAT = re.compile(r"(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)")
_INT = re.compile(r"(?:0x[0-9a-fA-F]+|[0-9]+)([uU]?)")
_IDENT = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_PREFIX = re.compile(rf"([rR]?[bB]?|[bB][rR])({_QUOTES})")
_SYMBOL = re.compile(r"==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}]")
_QUOTED_IDENT = re.compile(r"`([a-zA-Z0-9_./ -]+)`")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_MAX_DIGITS = 64  # int() rejects thousands of digits; so many are out of range anyway
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SAME = "\"'`\\?"


def tokens(source: str) -> list[CelToken]:
    """All tokens of an expression, the last of kind `end`. Raises CompileError."""
    result: list[CelToken] = []
    at = 0
    while True:
        space = _SPACE.match(source, at)
        at = space.end() if space else at
        if at >= len(source):
            return [*result, CelToken("end", "<EOF>", len(source))]
        token = _token(source, at)
        result.append(token)
        at += len(token.text)


def _token(source: str, at: int) -> CelToken:
    if match := _PREFIX.match(source, at):
        return _string(source, at, match)
    if match := _FLOAT.match(source, at):
        return CelToken("float", match.group(), at, float(match.group()))
    if match := _INT.match(source, at):
        text = match.group()
        digits = text.rstrip("uU")
        is_hexadecimal = digits.startswith("0x")
        significant = digits.removeprefix("0x").lstrip("0")[:_MAX_DIGITS] or "0"
        value = int(significant, 16 if is_hexadecimal else 10)
        return CelToken("uint" if match.group(1) else "int", text, at, value)
    if match := _IDENT.match(source, at):
        return CelToken("ident", match.group(), at)
    if match := _SYMBOL.match(source, at):
        return CelToken(match.group(), match.group(), at)
    if match := _QUOTED_IDENT.match(source, at):
        return CelToken("quoted-ident", match.group(), at, match.group(1))
    raise _unrecognized(source, at, source[at])


def _unrecognized(source: str, at: int, text: str) -> CompileError:
    return CompileError(source, [Issue(at, f"Syntax error: token recognition error at: '{text}'")])


def _string(source: str, at: int, match: re.Match[str]) -> CelToken:
    prefix, quote = match.group(1).lower(), match.group(2)
    body = match.end()
    end = body
    while not source.startswith(quote, end):
        if end >= len(source) or (len(quote) == 1 and source[end] in "\r\n"):
            raise _unrecognized(source, at, source[at:end])
        end += 2 if source[end] == "\\" and "r" not in prefix else 1
    text = source[at : end + len(quote)]
    inside = source[body:end]
    is_bytes = "b" in prefix
    if "r" not in prefix:
        return CelToken("bytes" if is_bytes else "string", text, at, _unescaped(source, at, inside, is_bytes=is_bytes))
    return CelToken("bytes" if is_bytes else "string", text, at, inside.encode() if is_bytes else inside)


def _unescaped(source: str, at: int, text: str, *, is_bytes: bool) -> str | bytes:
    def invalid_escape() -> CompileError:
        return CompileError(source, [Issue(at, "Syntax error: invalid escape sequence in a string literal")])

    parts: list[str] = []
    last = 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[last : match.start()])
        last = match.end()
        small, large, four, eight, octal, other = match.groups()
        if other is not None:
            if other not in _SIMPLE and other not in _SAME:
                raise invalid_escape()
            parts.append(_SIMPLE.get(other, other))
            continue
        code = int(octal, 8) if octal else int(small or large or four or eight, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000 or (is_bytes and (four or eight)):
            raise invalid_escape()
        # in bytes an escape is one byte: a surrogate marks it, because the rest is encoded as UTF-8
        parts.append(chr(0xDC00 + code) if is_bytes and code > 0x7F else chr(code))
    parts.append(text[last:])
    unescaped = "".join(parts)
    return unescaped.encode("utf-8", "surrogateescape") if is_bytes else unescaped
