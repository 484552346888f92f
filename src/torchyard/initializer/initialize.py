"""Brings a dataset or a model once: a container that is started again finds what is there.

Its files come into a directory of their URI first: an interrupted attempt goes on with its own files only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torchyard.initializer.brought_files import incoming_directory, move_into_place, read_marker, remove_brought
from torchyard.initializer.errors import InitializerError
from torchyard.initializer.file_source import bring_files
from torchyard.initializer.hugging_face import bring_snapshot
from torchyard.initializer.request import InitializerRequest, parse_request
from torchyard.initializer.s3 import bring_objects

_SOURCES: Mapping[str, Callable[[InitializerRequest, Path], int]] = {
    "file": bring_files,
    "pvc": bring_files,
    "hf": bring_snapshot,
    "s3": bring_objects,
}


def initialize(kind: str, variables: Mapping[str, str], target: Path) -> str:
    """Returns a message that says what was done. Raises `InitializerError`."""
    request = parse_request(kind, variables)
    if request is None:
        return f"there is no {kind} to bring: STORAGE_URI is empty"
    try:
        target.mkdir(parents=True, exist_ok=True)
        before = read_marker(target)
        if before.uri == request.uri:
            return f"{request.uri} is in {target} already"
        remove_brought(target, before)
        incoming = incoming_directory(target, request.uri)
        count = _SOURCES[request.scheme](request, incoming)
        move_into_place(incoming, target, request.uri)
    except OSError as error:
        volume = "the volume `initializer` of the runtime"
        reason = f"{error.filename or target} cannot be written: {error.strerror or error}"
        raise InitializerError(volume, reason, "mount a volume that is writable and large enough") from error
    return f"{count} files of {request.uri} are in {target}"
