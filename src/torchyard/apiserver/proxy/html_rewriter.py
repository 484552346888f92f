"""Rewrites the URLs in the tags of an HTML document, piece by piece as it arrives.

Start tags are written anew, as golang.org/x/net/html does: names in lower case, values in double quotes. Everything
else is copied.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "a": ("href",),
    "applet": ("codebase",),
    "area": ("href",),
    "audio": ("src",),
    "base": ("href",),
    "blockquote": ("cite",),
    "body": ("background",),
    "button": ("formaction",),
    "command": ("icon",),
    "del": ("cite",),
    "embed": ("src",),
    "form": ("action",),
    "frame": ("longdesc", "src"),
    "head": ("profile",),
    "html": ("manifest",),
    "iframe": ("longdesc", "src"),
    "img": ("longdesc", "src", "usemap"),
    "input": ("src", "usemap", "formaction"),
    "ins": ("cite",),
    "link": ("href",),
    "object": ("classid", "codebase", "data", "usemap"),
    "q": ("cite",),
    "script": ("src",),
    "source": ("src",),
    "video": ("poster", "src"),
}
# Their content is text, whatever it looks like.
_RAW_TEXT = frozenset(
    ("iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "title", "textarea", "xmp")
)
# A longer tag is copied. What is incomplete is read again with the next piece, so that this bounds its cost.
_MAX_TAG = 1 << 14
_ESCAPES = str.maketrans({"&": "&amp;", "'": "&#39;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "\r": "&#13;"})
_match_name = re.compile(r"<([A-Za-z][^\s/>]*)").match
_search_mark = re.compile(r"""[>"']""").search
_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""")


class HtmlRewriter:
    """`feed` returns what can be written so far; `finish` the rest. Bytes that are not UTF-8 stay as they are."""

    def __init__(self, rewrite: Callable[[str], str]) -> None:
        self._rewrite = rewrite
        self._pending = b""
        self._raw_text = ""  # the element whose text is being copied
        self._until = ""  # the end of the comment, declaration or end tag that is being copied
        self._long_tag = ""  # the name of the start tag that is being copied
        self._quote = ""  # of the value in that tag

    def feed(self, data: bytes) -> bytes:
        text = (self._pending + data).decode("utf-8", "surrogateescape")
        output, at = self._advance(text)
        self._pending = text[at:].encode("utf-8", "surrogateescape")
        return output.encode("utf-8", "surrogateescape")

    def finish(self) -> bytes:
        rest, self._pending = self._pending, b""
        return rest

    def _advance(self, text: str) -> tuple[str, int]:
        """The output for the complete tokens, and where the first incomplete one begins."""
        parts: list[str] = []
        at = 0
        while at < len(text):
            end, token = self._token(text, at)
            if end == at:
                break
            parts.append(token)
            at = end
        return "".join(parts), at

    def _token(self, text: str, at: int) -> tuple[int, str]:
        """Where the token that begins here ends, and its output; the same place if it is incomplete."""
        if self._long_tag:
            end = self._end_of_long_tag(text, at)
        elif self._until:
            end = self._end_of_markup(text, at)
        elif self._raw_text:
            end = self._end_of_raw_text(text, at)
        elif text[at] == "<":
            return self._tag(text, at)
        else:
            end = text.find("<", at)
            end = len(text) if end < 0 else end
        return end, text[at:end]

    def _end_of_markup(self, text: str, at: int) -> int:
        end = text.find(self._until, at)
        if end < 0:  # the end may be cut in two
            return max(at, len(text) - len(self._until) + 1)
        end += len(self._until)
        self._until = ""
        return end

    def _end_of_raw_text(self, text: str, at: int) -> int:
        match = re.compile(rf"</{re.escape(self._raw_text)}(?=[\s/>])", re.IGNORECASE).search(text, at)
        if match is not None:
            self._raw_text, self._until = "", ">"
            return match.end()
        # an end tag may be cut in two
        tail = text.rfind("<", max(at, len(text) - len(self._raw_text) - 2))
        return len(text) if tail < 0 else tail

    def _end_of_long_tag(self, text: str, at: int) -> int:
        end, self._quote = _end_of_tag(text, at, self._quote)
        if end < 0:
            return len(text)
        is_self_closing = text[end - 2 : end - 1] == "/"
        self._raw_text = self._long_tag if self._long_tag in _RAW_TEXT and not is_self_closing else ""
        self._long_tag = ""
        return end

    def _tag(self, text: str, start: int) -> tuple[int, str]:
        following = text[start + 1 : start + 2]
        if not following or text[start : start + 4] in ("<!", "<!-"):
            return start, ""
        if following in "!?/":
            self._until = "-->" if text.startswith("<!--", start) else ">"
            end = start + (4 if self._until == "-->" else 2)
            return end, text[start:end]
        name = _match_name(text, start)
        if name is None:
            return start + 1, "<"
        end, quote = _end_of_tag(text, name.end(), "")
        if end >= 0:
            return end, self._start_tag(name[1].lower(), text[name.end() : end - 1])
        if len(text) - start <= _MAX_TAG:
            return start, ""
        self._long_tag, self._quote = name[1].lower(), quote
        return len(text), text[start:]

    def _start_tag(self, name: str, attributes: str) -> str:
        is_self_closing = attributes.endswith("/")
        urls = _ATTRIBUTES.get(name, ())
        parts = [name]
        for match in _ATTRIBUTE.finditer(attributes):
            key, value = match[1].lower(), match[2] or ""
            if value[:1] in ("'", '"'):
                value = value[1:-1]
            value = html.unescape(value)
            if key in urls:
                value = self._rewrite(value)
            parts.append(f'{key}="{value.translate(_ESCAPES)}"')
        if name in _RAW_TEXT and not is_self_closing:
            self._raw_text = name
        return f"<{' '.join(parts)}{'/' if is_self_closing else ''}>"


def _end_of_tag(text: str, at: int, quote: str) -> tuple[int, str]:
    """Behind the `>` outside of quotes, or -1 and the quote that is open. Reads each character once."""
    while True:
        if quote:
            closing = text.find(quote, at)
            if closing < 0:
                return -1, quote
            at = closing + 1
        mark = _search_mark(text, at)
        if mark is None:
            return -1, ""
        at, quote = mark.end(), mark[0]
        if quote == ">":
            return at, ""
