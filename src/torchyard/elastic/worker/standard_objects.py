"""Objects of the standard library that keep values: shared counters, context variables, queues, iterators, buffers."""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import operator
import os
import queue
import sys
import threading
import types
import zlib
from collections.abc import Callable, Iterable
from typing import Any

_COUNTED = (*(type(iter(kind())) for kind in (list, tuple, dict, set, str, bytes)), type(iter(range(1))), reversed)
"""Iterators that know how many items are left."""


def _generator(value: types.GeneratorType[Any, Any, Any]) -> list[tuple[str, Any]]:
    frame = value.gi_frame
    return [(".gi_frame", None if frame is None else dict(frame.f_locals) | {"at": frame.f_lasti})]


_READERS: tuple[tuple[Any, Callable[[Any], list[tuple[str, Any]]]], ...] = (
    (contextvars.ContextVar, lambda value: [(".get()", value.get(None))]),
    (threading.local, lambda value: [(f".{key}", item) for key, item in vars(value).items()]),
    (types.GeneratorType, _generator),
    (_COUNTED, lambda value: [("len", operator.length_hint(value))]),
    ((bytearray, array.array), lambda value: [("len", len(value)), ("crc32", zlib.crc32(value))]),
    ((collections.UserDict, collections.UserList), lambda value: [(".data", value.data)]),
    (queue.Queue, lambda value: [(".queue", value.queue)]),
    (queue.SimpleQueue, lambda value: [(".qsize()", value.qsize())]),
)
"""How the values of each kind are read: by an attribute, or by a function of the object."""
READS_ENVIRONMENT = frozenset({"environ", "getenv", "putenv"})


def values_kept(name: str, value: Any) -> list[tuple[str, Any]] | None:
    """Return what an object keeps, by the names of messages; None for other objects."""
    for kind, read in _READERS:
        if isinstance(value, kind):
            return [(f"{name}{key}" if key[:1] in ".[" else f"{key}({name})", item) for key, item in read(value)]
    return _shared_between_processes(name, value)


def _shared_between_processes(name: str, value: Any) -> list[tuple[str, Any]] | None:
    """Return the value of a `multiprocessing.Value` or `Array`, or of what is in them."""
    shared = sys.modules.get("multiprocessing.sharedctypes")
    if shared is not None and isinstance(value, shared.SynchronizedBase):
        value = value.get_obj()
    if isinstance(value, ctypes.Array | ctypes.Structure):
        return [(name, zlib.crc32(bytes(value)))]
    simple = isinstance(value, ctypes._SimpleCData)
    return [(f"{name}.value", value.value)] if simple else None


def environment(names: Iterable[str]) -> list[tuple[str, Any]]:
    """Return the environment if code with these names may read it."""
    return [("os.environ", dict(os.environ))] if not READS_ENVIRONMENT.isdisjoint(names) else []
