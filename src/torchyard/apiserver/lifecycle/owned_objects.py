"""The objects that belong to this program, such as the definitions of its kinds: written at every start.

A start that finds what the last start wrote serves at once and checks the objects afterwards: the check takes longer
than the rest of the start. A file has the digest of what was written last. After a change of the program, or when an
object is missing, clients are served only with the new objects.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import orjson

from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.certificate_dir import write
from torchyard.apiserver.lifecycle.bootstrap import ensure_objects, has_objects
from torchyard.apiserver.registry.registry import Registry


class OwnedObjects:
    """The objects, and the file with the digest of those that were written last."""

    def __init__(self, registry: Registry, objects: list[Object], file: Path) -> None:
        self._registry, self._objects, self._file = registry, objects, file
        self._digest = hashlib.sha256(orjson.dumps(objects)).hexdigest()
        self._is_written = False
        self._checked = asyncio.Event()

    def are_present(self) -> bool:
        """Whether an earlier start has written these very objects, and they still exist."""
        try:
            return self._file.read_text() == self._digest and has_objects(self._registry, self._objects)
        except (OSError, UnicodeDecodeError):
            return False

    async def ensure(self, user: User) -> None:
        """Create or update the objects, once in the life of a process."""
        if self._is_written:
            return
        await ensure_objects(self._registry, user, self._objects)
        write(self._file, self._digest.encode())
        self._is_written = True

    async def run(self, user: User) -> None:
        """Check the objects of a plane that serves already, which an error does not end."""
        try:
            await self.ensure(user)
        finally:
            self._checked.set()
        await asyncio.Event().wait()

    async def checked(self) -> None:
        """Wait until `run` has checked the objects, or has failed for the first time."""
        await self._checked.wait()
