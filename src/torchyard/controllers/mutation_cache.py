"""An informer's objects, at least as new as the controller's own writes (client-go's MutationCache).

An informer sees a write slightly later than its writer. A controller that reads the informer alone in that moment would
do everything twice.
"""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.objects import Object
from torchyard.kube.informer import Informer, Key, key_of


class MutationCache:
    """`get` an object by its key, or `by_index` those of a group. Writes are forgotten when the informer has them."""

    def __init__(
        self, informer: Informer, index: str = "", group: Callable[[Object], list[str]] = lambda _obj: []
    ) -> None:
        """For `by_index`, `group` returns the values of `index` that an object has."""
        self._informer, self._index, self._group = informer, index, group
        self._unseen: dict[Key, Object] = {}
        self._groups: dict[str, set[Key]] = {}
        informer.on_change(self._changed)

    def record(self, obj: Object) -> None:
        """Record the server's response to a write."""
        if not self._informer.has_seen(obj):
            obj, key = self._informer.transform(obj), key_of(obj)
            self._forget(key)
            self._unseen[key] = obj
            for value in self._group(obj):
                self._groups.setdefault(value, set()).add(key)

    @property
    def pending(self) -> int:
        """How many writes the informer has not seen."""
        return len(self._unseen)

    def get(self, key: Key) -> Object | None:
        """What was written last, unless the informer has seen it."""
        unseen = self._unseen.get(key)
        if unseen is not None and not self._informer.has_seen(unseen):
            return unseen
        return self._informer.get(*key)

    def by_index(self, value: str) -> list[Object]:
        cached = self._informer.by(self._index, value)
        keys = self._groups.get(value)
        if not keys:
            return cached
        objects = {key_of(obj): obj for obj in cached}
        for key in keys:
            unseen = self._unseen[key]
            if not self._informer.has_seen(unseen):
                objects[key] = unseen
        return list(objects.values())

    def _changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        if self._unseen:
            key = key_of(obj)
            unseen = self._unseen.get(key)
            if unseen is not None and self._informer.has_seen(unseen):
                self._forget(key)

    def _forget(self, key: Key) -> None:
        unseen = self._unseen.pop(key, None)
        if unseen is not None:
            for value in self._group(unseen):
                keys = self._groups[value]
                keys.discard(key)
                if not keys:
                    del self._groups[value]
