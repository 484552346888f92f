"""An informer's objects, at least as new as the controller's own writes (client-go's MutationCache).

An informer sees a write slightly later than its writer. A controller that reads the informer alone in that moment would
do everything twice.
"""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.objects import Object
from torchyard.kube.informer import Informer, Key, key_of


class MutationCache:
    """`group` returns the values of `index` that an object has; objects without one are not cached."""

    def __init__(self, informer: Informer, index: str, group: Callable[[Object], list[str]]) -> None:
        self._informer, self._index, self._group = informer, index, group
        self._unseen: dict[str, dict[Key, Object]] = {}

    def record(self, obj: Object) -> None:
        """Record the server's response to a write."""
        if not self._informer.has_seen(obj):
            obj = self._informer.transform(obj)
            for value in self._group(obj):
                self._unseen.setdefault(value, {})[key_of(obj)] = obj

    def by_index(self, value: str) -> list[Object]:
        objects = {key_of(obj): obj for obj in self._informer.by(self._index, value)}
        newer = self._unseen.pop(value, {})
        unseen = {key: obj for key, obj in newer.items() if not self._informer.has_seen(obj)}
        if unseen:
            self._unseen[value] = unseen
        return list((objects | unseen).values())
