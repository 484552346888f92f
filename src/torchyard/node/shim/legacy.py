"""State directories of version 0.1, whose zygote and namespace holder had other names, keep working.

A node that is upgraded while its pods run finds the namespaces they use, and ends the zygote that forked their shims.
"""

from __future__ import annotations

import contextlib
from typing import Any

from torchyard.node.shim import records, wire

ZYGOTE_SOCKET = "keeper.sock"
NAMESPACE_HOLDER_RECORD = "anchor.json"
_SECONDS = 10.0


def namespace_holder_record(root: str) -> dict[str, Any] | None:
    record: dict[str, Any] | None = records.read(f"{root}/{NAMESPACE_HOLDER_RECORD}")
    return record


def shut_down_zygote(root: str) -> None:
    """Its shims run on; those that wait for a pod end with it."""
    with contextlib.suppress(OSError), wire.connect(root, ZYGOTE_SOCKET, timeout=_SECONDS) as channel:
        wire.send(channel, {"op": "shutdown"})
        wire.receive(channel)
