"""JSON text as Go's decoder reads it: what is not valid Unicode becomes U+FFFD instead of an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from torchyard.api import errors

_T = TypeVar("_T")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # bytes, as surrogateescape decodes them
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf"(?P<pair>{_PAIR})|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{{2}})|\\.", re.DOTALL)


def read_replacing_invalid(read: Callable[[bytes], _T], body: bytes) -> _T:
    """The result of `read`, which reads JSON and raises a StatusError for text that is not valid Unicode."""
    try:
        return read(body)
    except errors.StatusError:
        text = replace_invalid(body)
        if text == body:
            raise
        return read(text)


def replace_invalid(body: bytes) -> bytes:
    """Replace each byte that is not UTF-8, and each escaped half of a surrogate pair."""
    text = _NOT_UTF8.sub("\ufffd", body.decode("utf-8", "surrogateescape"))
    return _ESCAPE.sub(lambda match: "\ufffd" if match["half"] else match[0], text).encode()
