"""The built pages: files that Vite writes, read once and served from memory, so that no path reaches the disk."""

from __future__ import annotations

import gzip
import mimetypes
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.console.request import ConsoleRequest, ConsoleResponse

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
MISSING = "the pages of the console are not built"
BUILD_HINT = "run `make console` in the checkout (it needs Node.js 20), or install a released wheel"
# Vite puts a hash of the content into the names of these files.
_HASHED = re.compile(r"assets/.+-[A-Za-z0-9_-]{8}\.[a-z0-9]+")
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}
_MIN_GZIP_BYTES = 1024
_BINARY = ("image/png", "image/jpeg", "font/")


class PagesMissing(YardError):
    """This is a checkout whose pages were not built."""

    code = "ConsoleNotBuilt"

    def __init__(self) -> None:
        super().__init__(MISSING, hint=BUILD_HINT)


@dataclass(frozen=True)
class _Page:
    body: bytes
    content_type: str
    cache: str

    @cached_property
    def compressed(self) -> bytes | None:
        if len(self.body) < _MIN_GZIP_BYTES or self.content_type.startswith(_BINARY):
            return None
        return gzip.compress(self.body, mtime=0)


class ConsolePages:
    """The pages of the package, or of the directory in TORCHYARD_CONSOLE_PAGES, for those who work on the pages."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or Path(os.environ.get("TORCHYARD_CONSOLE_PAGES") or STATIC)

    @property
    def are_built(self) -> bool:
        return (self._directory / INDEX).is_file()

    def find(self, request: ConsoleRequest) -> ConsoleResponse | None:
        """The page at a path; `/` is the index. None if there is no such page."""
        page = self._pages.get(request.path.removeprefix("/") or INDEX)
        if page is None:
            return None
        headers = {"Cache-Control": page.cache, "Vary": "Accept-Encoding"}
        body = page.compressed if "gzip" in request.headers.get("Accept-Encoding", "") else None
        if body is not None:
            headers["Content-Encoding"] = "gzip"
        return ConsoleResponse(200, page.body if body is None else body, page.content_type, headers)

    @cached_property
    def _pages(self) -> dict[str, _Page]:
        """The files by their paths below the directory. Links are not followed."""
        if not self.are_built:
            raise PagesMissing
        files = [path for path in self._directory.rglob("*") if path.is_file() and not path.is_symlink()]
        return {path.relative_to(self._directory).as_posix(): self._read(path) for path in files}

    def _read(self, path: Path) -> _Page:
        name = path.relative_to(self._directory).as_posix()
        content_type = _TYPES.get(path.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        cache = "public, max-age=31536000, immutable" if _HASHED.fullmatch(name) else "no-cache"
        return _Page(path.read_bytes(), content_type, cache)
