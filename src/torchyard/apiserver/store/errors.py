"""What the store raises: a lost compare and swap, and history that compaction removed."""

from __future__ import annotations

from torchyard.api.errors import YardError
from torchyard.apiserver.store.cache import Record


class RevisionConflict(YardError):
    """The object is not at the expected revision; `current` is its present state."""

    code = "RevisionConflict"

    def __init__(self, key: str, current: Record | None) -> None:
        super().__init__(f"{key} has changed")
        self.current = current


class Compacted(YardError):
    """The requested history was compacted."""

    code = "Compacted"

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {requested} ({oldest})")
