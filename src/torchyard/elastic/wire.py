"""The control stream between workers and coordinator: its messages and their framing. No sockets of its own.

A frame is a four-byte length and a JSON object. A message is a frozen dataclass; its `kind` names it on the wire. Every
message that concerns a world carries its fence, and whoever holds a newer fence drops it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from torchyard.elastic.errors import ElasticError

if TYPE_CHECKING:
    from asyncio import StreamReader

VERSION = 2
LARGEST_FRAME = 16 << 20
LENGTH = struct.Struct("!I")


class Fence(NamedTuple):
    """Names one world: the coordinator's incarnation and its generation. Greater means newer."""

    incarnation: int
    generation: int


NO_FENCE = Fence(0, 0)


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """What a worker holds: its model after `step` in the world `fence`; or nothing but what it can restore.

    `restorable` is the newest step it could load from shared memory or a checkpoint; 0 is a fresh model.
    """

    fence: Fence = NO_FENCE
    step: int = 0
    live: bool = False
    restorable: int = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a connection; `running` and `members` are set by one that returns while it trains."""

    job: str
    token: str
    name: str
    role: str = "worker"
    version: int = VERSION
    node: str = ""
    pid: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    standing: WorkerProgress = field(default_factory=WorkerProgress)
    running: bool = False
    members: tuple[str, ...] = ()
    done: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    incarnation: int
    lease: float


@dataclass(frozen=True, slots=True)
class Rejection:
    code: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class StartRendezvous:
    """Leave the present world: at once (`urgent`: cut what blocks), or together at the next step boundary."""

    fence: Fence
    urgent: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ReportProgress:
    fence: Fence
    standing: WorkerProgress


@dataclass(frozen=True, slots=True)
class StartWorld:
    """The new world: ranks are positions in `members`, `behind` receive the state of `leader`, who holds `step`."""

    fence: Fence
    members: tuple[str, ...]
    step: int
    leader: str
    behind: tuple[str, ...]
    restore: bool
    speeds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreValue:
    """A rendezvous value, relayed to every member of the world."""

    fence: Fence
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class StepsApplied:
    """Steps a worker has applied: rows of [step, loss, digest]."""

    fence: Fence
    rows: tuple[tuple[int, float | None, str], ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life; `cost` is the seconds one micro-batch took lately, 0 while unknown."""

    step: int
    phase: str
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class WorldFormed:
    """A worker has made its first step in a world: where its time went, in milliseconds."""

    fence: Fence
    durations: dict[str, float]


@dataclass(frozen=True, slots=True)
class GroupFailed:
    fence: Fence
    reason: str


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    reason: str


@dataclass(frozen=True, slots=True)
class ProgramFailed:
    """User code raised: where in the data, and how."""

    step: int
    micro: int
    records: tuple[int, ...]
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class TrainingDone:
    step: int
    digest: str


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    fence: Fence
    step: int
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Something an agent saw or did, for the event log."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkerExiting:
    """From an agent: this worker is ending. Its connection may stay open for seconds yet."""

    worker: str


@dataclass(frozen=True, slots=True)
class KillHungWorker:
    """To an agent: this worker's training thread stands still. Note where, then end it."""

    worker: str
    message: str


@dataclass(frozen=True, slots=True)
class TargetWorkers:
    """How many workers an agent should keep alive."""

    workers: int


@dataclass(frozen=True, slots=True)
class Stop:
    """No more work for the receiver: `finished`, `retired`, `expelled` or `failed`."""

    why: str
    message: str = ""


Message = (
    Hello
    | Welcome
    | Rejection
    | StartRendezvous
    | ReportProgress
    | StartWorld
    | StoreValue
    | StepsApplied
    | Heartbeat
    | WorldFormed
    | GroupFailed
    | LeaveRequest
    | ProgramFailed
    | TrainingDone
    | CheckpointSaved
    | AgentEvent
    | WorkerExiting
    | KillHungWorker
    | TargetWorkers
    | Stop
)
_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in Message.__args__}


def encode(message: Message) -> bytes:
    told = {"kind": type(message).__name__.lower()}
    told |= {name: getattr(message, name) for name in message.__slots__}
    body = json.dumps(told, separators=(",", ":"), default=asdict).encode()
    return LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """Unknown fields are ignored, so that a newer peer can be understood; anything else wrong is refused."""
    try:
        raw = json.loads(body)
        kind = _KINDS[raw.pop("kind")]
        known = kind.__slots__
        message: Message = kind(**{key: _lift(key, value) for key, value in raw.items() if key in known})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ElasticError("BadMessage", f"not a message of the control stream: {error!r}") from error
    return message


def frame_length(prefix: bytes) -> int:
    length: int = LENGTH.unpack(prefix)[0]
    if length > LARGEST_FRAME:
        raise ElasticError("BadMessage", f"a frame of {length} bytes is larger than {LARGEST_FRAME}")
    return length


async def receive(reader: StreamReader) -> Message:
    """The next message of a stream."""
    return decode(await reader.readexactly(frame_length(await reader.readexactly(LENGTH.size))))


def _lift(key: str, value: Any) -> Any:
    """JSON has neither tuples nor our records: rebuild them."""
    if key == "fence":
        return Fence(*value)
    if key == "standing":
        return WorkerProgress(**{name: _lift(name, item) for name, item in value.items()})
    if isinstance(value, list):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value
