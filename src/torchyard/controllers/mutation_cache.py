"""An informer's objects as new as a controller's own writes.

A cache hears of a write a moment after the writer; who decides by the cache alone in that moment does everything twice.
"""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.objects import Object
from torchyard.kube.informer import Informer, Key, key_of


class MutationCache:
    """`group` says under which value of `index` the informer finds an object; those without a group are left alone."""

    def __init__(self, informer: Informer, index: str, group: Callable[[Object], list[str]]) -> None:
        self._informer, self._index, self._group = informer, index, group
        self._unseen: dict[str, dict[Key, Object]] = {}

    def record(self, obj: Object) -> None:
        """What a server answered to a write."""
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
