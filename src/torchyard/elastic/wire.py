"""The control stream between workers, agents and the coordinator: its messages and their framing. It opens no sockets.

A frame is a four-byte length and a JSON object. A message is a frozen dataclass; `kind` names its class on the wire.
A connection begins with `Authentication`, which must be small: nobody else can make the coordinator hold much memory.
Every message about a world carries the world's fence, and a receiver that knows a newer fence drops it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.wire_fields import Converter, converters

if TYPE_CHECKING:
    from asyncio import StreamReader

VERSION = 4
LARGEST_FRAME = 4 << 20
LARGEST_SMALL_FRAME = 1 << 16
"""The limit for all messages but those with a row or a name for each of many steps, records or workers."""
LARGEST_FIRST_FRAME = 1 << 12
LARGEST_TEXT = 1 << 16
"""Longer texts of programs, for example of exceptions, are cut before they are sent."""
LENGTH = struct.Struct("!I")

Role = Literal["worker", "agent"]


class WorkerPhase(StrEnum):
    """What the training thread of a worker does. Heartbeats carry it, and the coordinator detects hangs with it."""

    UNKNOWN = ""
    """No heartbeat has arrived yet."""
    STARTING = "starting"
    WAITING = "waiting"
    """For the coordinator to announce the next world."""
    FORMING = "forming"
    """Connecting to the other members of a new world."""
    LOADING = "loading"
    COMPUTING = "computing"
    REDUCING = "reducing"
    APPLYING = "applying"
    OUTSIDE = "outside"
    """In the body of the program's own loop."""
    DONE = "done"


class StopCause(StrEnum):
    """Why there is no more work for a worker or an agent."""

    FINISHED = "finished"
    TRAINING_FINISHED = "training finished"
    """One training of the program is finished, and others follow."""
    RETIRED = "retired"
    """The job goes on without this worker."""
    EXPELLED = "expelled"
    """The worker's lease ended without a heartbeat."""
    FAILED = "failed"


class Fence(NamedTuple):
    """Identifies one world: the coordinator's incarnation and its generation. A greater fence is newer."""

    incarnation: int
    generation: int


NO_FENCE = Fence(0, 0)

AppliedRow = tuple[int, float | None, str]
"""A step that a worker applied: its number, its loss, and the digest of the model or an empty string."""


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """The state that a worker holds.

    Attributes:
        fence: the world in which the worker applied its last step.
        step: the last step that its model contains.
        live: whether the model is in memory; otherwise only `restorable` counts.
        restorable: the newest step that it could load from shared memory or a checkpoint; 0 is a fresh model.
    """

    fence: Fence = NO_FENCE
    step: int = 0
    live: bool = False
    restorable: int = 0


@dataclass(frozen=True, slots=True)
class Authentication:
    """The first message of a connection: proves that it belongs to the job."""

    job: str
    token: str = field(repr=False)
    name: str
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Hello:
    """The second message of a connection. A worker that reconnects while it trains sets `running` and `members`."""

    name: str
    role: Role = "worker"
    node: str = ""
    pid: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    progress: WorkerProgress = field(default_factory=WorkerProgress)
    running: bool = False
    members: tuple[str, ...] = ()
    done: str = ""
    resume: str = "auto"


@dataclass(frozen=True, slots=True)
class Welcome:
    """The coordinator has accepted a connection; `lease` is how many seconds it waits for a heartbeat."""

    incarnation: int
    lease: float


@dataclass(frozen=True, slots=True)
class Rejection:
    """The coordinator refuses a connection; a retry does not help."""

    code: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class StartRendezvous:
    """Leave the present world: at once if `urgent` (abort collectives), else together at the next step boundary."""

    fence: Fence
    urgent: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ReportProgress:
    """A worker has left its world and reports the state that it holds."""

    fence: Fence
    progress: WorkerProgress


@dataclass(frozen=True, slots=True)
class StartWorld:
    """The new world. Ranks are positions in `members`; the `leader` holds `step` and sends its state to `behind`."""

    fence: Fence
    members: tuple[str, ...]
    step: int
    leader: str
    behind: tuple[str, ...]
    restore: bool
    speeds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreValue:
    """A value of the process group's key-value store, relayed to every member of the world."""

    fence: Fence
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class StepsApplied:
    """Steps that a worker has applied."""

    fence: Fence
    rows: tuple[AppliedRow, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker is alive. `cost` is the recent time of one micro-batch in seconds, 0 while it is unknown."""

    step: int
    phase: WorkerPhase
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class WorldFormed:
    """A worker has applied its first step in a world: the duration of each part, in milliseconds."""

    fence: Fence
    durations: dict[str, float]


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """A collective failed, so some member of the world is gone."""

    fence: Fence
    reason: str


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """A worker wants to leave at the next step boundary, for example after SIGTERM."""

    reason: str


@dataclass(frozen=True, slots=True)
class ProgramFailed:
    """The training program raised: at which micro-batch and records, and with which error."""

    step: int
    micro: int
    records: tuple[int, ...]
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class TrainingDone:
    """A worker has applied the last step, or its program has left the loop before that (`early`)."""

    step: int
    digest: str
    early: bool = False


@dataclass(frozen=True, slots=True)
class AbortJob:
    """A worker has seen that the job cannot give a correct result: it must end."""

    code: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is durable."""

    fence: Fence
    step: int
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """An agent's entry for the event log."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkerExiting:
    """An agent reports that a worker is ending; its connection may stay open for seconds."""

    worker: str


@dataclass(frozen=True, slots=True)
class KillHungWorker:
    """An agent must record the stack of a worker whose training thread makes no progress, and kill it."""

    worker: str
    message: str


@dataclass(frozen=True, slots=True)
class TargetWorkers:
    """How many workers an agent keeps alive."""

    workers: int


@dataclass(frozen=True, slots=True)
class Stop:
    """There is no more work for the receiver.

    Attributes:
        cause: why.
        message: the same for people.
        step: the last step of a training that finished; 0 if it did not finish.
    """

    cause: StopCause
    message: str = ""
    step: int = 0

    @property
    def ends_training(self) -> bool:
        """Whether the receiver's training is finished."""
        return self.cause in (StopCause.FINISHED, StopCause.TRAINING_FINISHED)


Message = (
    Authentication
    | Hello
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
    | AbortJob
    | CheckpointSaved
    | AgentEvent
    | WorkerExiting
    | KillHungWorker
    | TargetWorkers
    | Stop
)
_MESSAGES: dict[str, type[Any]] = {message.__name__.lower(): message for message in Message.__args__}
_FIELDS: dict[str, dict[str, Converter]] = {kind: converters(message) for kind, message in _MESSAGES.items()}
_LARGE = (
    Hello,
    Rejection,
    AbortJob,
    StartWorld,
    StoreValue,
    StepsApplied,
    ProgramFailed,
    AgentEvent,
    KillHungWorker,
    Stop,
)


def encode(message: Message) -> bytes:
    """Return the frame of a message."""
    fields = {"kind": type(message).__name__.lower()}
    fields |= {name: getattr(message, name) for name in message.__slots__}
    body = json.dumps(fields, separators=(",", ":"), default=asdict).encode()
    return LENGTH.pack(len(body)) + body


def encode_opening(authentication: Authentication, hello: Hello) -> bytes:
    """Return the first frames of a connection."""
    return encode(authentication) + encode(hello)


def decode(body: bytes) -> Message:
    """Return the message in the body of a frame. Unknown fields are ignored; any other fault raises BadMessage."""
    try:
        values = json.loads(body)
        kind = values.pop("kind")
        message_type, known = _MESSAGES[kind], _FIELDS[kind]
        if len(body) > LARGEST_SMALL_FRAME and message_type not in _LARGE:
            raise ValueError(f"a {kind} message of {len(body)} bytes is larger than {LARGEST_SMALL_FRAME}")
        message: Message = message_type(**{key: known[key](value) for key, value in values.items() if key in known})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"[:200].encode(errors="replace").decode()
        raise ElasticError("BadMessage", f"not a message of the control stream: {problem}") from error
    return message


def frame_length(prefix: bytes, limit: int = LARGEST_FRAME) -> int:
    """Return the length of the body that follows a prefix of LENGTH.size bytes."""
    length: int = LENGTH.unpack(prefix)[0]
    if length > limit:
        raise ElasticError("BadMessage", f"a frame of {length} bytes is larger than {limit}")
    return length


async def receive(reader: StreamReader) -> Message:
    """Return the next message of a stream."""
    return decode(await reader.readexactly(frame_length(await reader.readexactly(LENGTH.size))))


def cut(text: str) -> str:
    """Return a text that fits into a message: the end of a long one, and only what can be encoded."""
    return text[-LARGEST_TEXT:].encode(errors="replace").decode()
