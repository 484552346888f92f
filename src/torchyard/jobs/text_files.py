"""Text files that users wrote, in the encodings that their editors and shells write."""

from __future__ import annotations

import codecs
from pathlib import Path

from torchyard.api.errors import YardError

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def read_text(path: Path) -> str:
    """The text of a file in UTF-8 or, with a byte order mark, in UTF-16, as PowerShell writes it; lines end with LF."""
    content = path.read_bytes()
    encoding = next((encoding for mark, encoding in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise YardError(
            f"cannot read {path}: line {line} is not {encoding.upper()}", hint="save it as UTF-8", code="BadScript"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
