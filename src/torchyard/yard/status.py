"""What `yard status` reports about a plane: its process, its node, and its parts."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.api.errors import YardError
from torchyard.yard.lock import PlaneProcess, running
from torchyard.yard.settings import PlaneSettings

if TYPE_CHECKING:
    from torchyard.kube.client import Client

# Where the API server of a plane reports its parts, for those who may read this path.
PARTS_PATH = "/debug/parts"
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PlanePart:
    """A part of a plane: a controller, the node, or a part of one of these."""

    part: str
    state: str  # Running, or Restarting after a failure
    since: str  # of this state
    failures: int  # since the start of the plane
    lastError: str  # noqa: N815 - the names of the output; empty: it has never failed

    @property
    def is_running(self) -> bool:
        return self.state == "Running"


@dataclass(frozen=True, slots=True)
class PlaneStatus:
    """A running plane. A plane that does not answer has no parts, and `error` says why."""

    state: str
    process: int
    address: str
    since: str
    kubeconfig: str
    store_bytes: int
    node: str
    parts: tuple[PlanePart, ...]
    error: str

    def fields(self) -> dict[str, Any]:
        """The status as `-o json` prints it."""
        fields = asdict(self)
        fields["storeBytes"] = fields.pop("store_bytes")
        return fields


def plane_status(state: Path) -> PlaneStatus | None:
    """The status of the plane of a state directory; None if none is running."""
    settings = PlaneSettings(state=state)
    holder = running(settings.lock)
    if holder is None:
        return None
    answer = asyncio.run(_ask(settings, holder)) if holder.url else _Answer(holder.node, (), "the plane is starting")
    return PlaneStatus(
        state=str(state),
        process=holder.pid,
        address=holder.url,
        since=holder.started,
        kubeconfig=str(settings.kubeconfig),
        store_bytes=_size(settings.database),
        node=answer.node,
        parts=answer.parts,
        error=answer.error,
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    node: str
    parts: tuple[PlanePart, ...]
    error: str


async def _ask(settings: PlaneSettings, holder: PlaneProcess) -> _Answer:
    from torchyard.kube.connect import open_client
    from torchyard.kube.kubeconfig import load

    try:
        async with asyncio.timeout(_ANSWER_SECONDS), open_client(load(settings.kubeconfig), "yard") as client:
            parts = tuple(PlanePart(**part) for part in (await client.raw("GET", PARTS_PATH))["parts"])
            return _Answer(await _node(client, holder.node) if holder.node else "", parts, "")
    except (YardError, TimeoutError) as error:
        reason = str(error) or "the plane does not respond"
        return _Answer(f"{holder.node}; state unknown: {reason}" if holder.node else "", (), reason)


async def _node(client: Client, name: str) -> str:
    """The state of the node. Like a kubelet, it does not register again when its object is deleted."""
    from torchyard.api.gvr import NODES
    from torchyard.core.node.health import ready_status

    node = await client.find(NODES, name)
    if node is None:
        return f"{name}, not registered; if it was deleted, `yard down --keep-pods` and `yard up` register it again"
    return f"{name}, {'ready' if ready_status(node) == 'True' else 'not ready'}"


def _size(database: Path) -> int:
    """The size of a store in bytes, with its write-ahead log."""
    parts = (database, database.with_name(f"{database.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())
