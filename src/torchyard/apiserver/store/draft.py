"""Who may change an object: the rule, and the type that carries it.

An object in memory has one owner at a time, and only its owner may change it.

1. A request owns what was decoded for it: its body, and the copies that `Record.object()` returns. It puts the new
   state of the object into a `Draft`.
2. `Store.put` and `Store.delete` take the draft over. When they raise `RevisionConflict`, the request owns it again and
   may compute another attempt from the same parts.
3. From the commit on, the bytes of the `Record` count. They never change, so that the cache, the responses and all
   watchers share them. Whoever needs an object decodes a copy of its own.
4. A watcher in this process needs an object for every change. While a change is published, the store gives the draft's
   object away to the first such watcher, which owns it from then on; `Record.take` is the only way to it. The others
   get copies. This saves one decoding for each write, and is allowed only for an exclusive draft: one that shares no
   part with anything else. Defaults, caches and templates may have put shared parts into any other draft.
"""

from __future__ import annotations

from torchyard.api.objects import Object


class Draft:
    """The new state of an object, on its way from the request into the store.

    `status_normalized`: the draft changes only the status of a custom resource, and one pass over that status found
    that it is valid and that neither pruning nor defaulting would change it. The verbs skip those steps then. Such a
    draft consists of what was decoded for this request, so it is exclusive too.
    """

    __slots__ = ("_is_given_away", "obj", "status_normalized")

    def __init__(self, obj: Object, *, status_normalized: bool = False) -> None:
        self.obj = obj
        self.status_normalized = status_normalized
        self._is_given_away = False

    def give_away(self) -> Object | None:
        """The object itself, for its new owner; None if the draft is not exclusive or was given away before."""
        if self._is_given_away or not self.status_normalized:
            return None
        self._is_given_away = True
        return self.obj
