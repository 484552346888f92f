"""The worker's end of the control stream: one thread that listens, beats, and reconnects. Knows nothing of tensors.

The training thread never blocks on the coordinator while it trains: what it has to say is sent or kept for later, and
what the coordinator wants is picked up at the next step boundary. Only a world that is being formed is waited for.
"""

from __future__ import annotations

import base64
import random
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar, cast

from torchyard.elastic import wire
from torchyard.elastic.errors import ElasticError, Rejected
from torchyard.elastic.wire import Fence, Message

BEAT_EVERY = 0.2
BACKOFF = (0.05, 1.0)
KEPT_ROWS = 4096
TELL_EVERY = 0.05
"""Applied steps are told together: a message for each would take a coordinator's time from workers beside it."""


AppliedRow = tuple[int, float | None, str]
T = TypeVar("T")


class Superseded(Exception):
    """A newer world was announced, or the job ended, while this one was being waited for."""


@dataclass(slots=True)
class HeartbeatState:
    """What the training thread is doing, for beats."""

    step: int = 0
    phase: str = "starting"
    cost: float = 0.0


class CoordinatorClient:
    def __init__(
        self, address: tuple[str, int], hello: Callable[[], wire.Hello], *, on_urgent: Callable[[], None]
    ) -> None:
        self._address = address
        self._hello = hello
        self._on_urgent = on_urgent
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._socket: socket.socket | None = None
        self._reform: wire.StartRendezvous | None = None
        self._reform_at = 0.0
        self._go: wire.StartWorld | None = None
        self._values: dict[tuple[Fence, str], bytes] = {}
        self._rows: deque[tuple[Fence, AppliedRow]] = deque(maxlen=KEPT_ROWS)
        self._untold: tuple[Fence, list[AppliedRow]] | None = None
        self._told_at = 0.0
        self._closing = False
        self.pulse = HeartbeatState()
        self.stop: wire.Stop | None = None
        self.refusal: wire.Rejection | None = None
        self.lost_at: float | None = None
        self.own_address = "127.0.0.1"
        self._thread = threading.Thread(target=self._run, name="elastic-link", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def fileno(self) -> int:
        held = self._socket
        return held.fileno() if held is not None else -1

    def _run(self) -> None:
        pause = BACKOFF[0]
        while not self._closing:
            try:
                connection = socket.create_connection(self._address, timeout=5)
            except OSError:
                self.lost_at = self.lost_at or time.monotonic()
                time.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(pause * 2, BACKOFF[1])
                continue
            pause = BACKOFF[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self._converse(connection)
            except (OSError, EOFError):
                pass
            finally:
                self._socket = None
                connection.close()
            self.lost_at = time.monotonic()
            if self.refusal is not None:
                return
            time.sleep(BACKOFF[0])

    def _converse(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with self._sending:
            connection.sendall(wire.encode(self._hello()))
            self._socket = connection
        self.own_address = connection.getsockname()[0]
        self.lost_at = None
        self._send_kept_rows()
        received = bytearray()
        beat_at = time.monotonic() + BEAT_EVERY
        while not self._closing:
            wait = max(0.0, beat_at - time.monotonic())
            if select.select([connection], [], [], wait)[0]:
                chunk = connection.recv(1 << 16)
                if not chunk:
                    raise EOFError
                received += chunk
                self._take_frames(received)
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + BEAT_EVERY
                self.send(wire.Heartbeat(self.pulse.step, self.pulse.phase, round(self.pulse.cost, 6)))

    def _take_frames(self, received: bytearray) -> None:
        while len(received) >= wire.LENGTH.size:
            end = wire.LENGTH.size + wire.frame_length(bytes(received[: wire.LENGTH.size]))
            if len(received) < end:
                return
            message = wire.decode(bytes(received[wire.LENGTH.size : end]))
            del received[:end]
            self._hear(message)

    def _hear(self, message: Message) -> None:
        urgent = False
        with self._changed:
            match message:
                case wire.StartRendezvous(fence=fence):
                    if self._reform is None or fence > self._reform.fence:
                        self._reform, self._reform_at = message, time.monotonic()
                        kept = self._go.fence if self._go is not None and not message.urgent else fence
                        self._values = {key: value for key, value in self._values.items() if key[0] >= kept}
                    urgent = message.urgent
                case wire.StartWorld():
                    self._go = message
                case wire.StoreValue(fence=fence, key=key, value=value):
                    self._values[fence, key] = base64.b64decode(value)
                case wire.Stop(why=why):
                    # An expelled worker whose connection still works was only slow: it comes back as a newcomer.
                    if why != "expelled":
                        self.stop = message
                        urgent = why == "failed"
                case wire.Rejection():
                    self.refusal = message
                    urgent = True
            self._changed.notify_all()
        if urgent:
            self._on_urgent()

    def send(self, message: Message) -> None:
        """Best effort: what is lost with a connection is told again in the next hello."""
        with self._sending:
            self._tell_rows()
            self._put_out(message)

    def _put_out(self, message: Message) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(wire.encode(message))
        except OSError:
            self._socket.close()
            self._socket = None

    def applied(self, fence: Fence, row: AppliedRow) -> None:
        """A step of this world was applied: the coordinator hears of it soon, and before anything else."""
        with self._sending:
            self._rows.append((fence, row))
            if self._untold is None or self._untold[0] != fence:
                self._tell_rows()
                self._untold = fence, []
            self._untold[1].append(row)
            if time.monotonic() - self._told_at >= TELL_EVERY:
                self._tell_rows()

    def _tell_rows(self) -> None:
        if self._untold is not None:
            (fence, rows), self._untold = self._untold, None
            self._told_at = time.monotonic()
            self._put_out(wire.StepsApplied(fence, tuple(rows)))

    def _send_kept_rows(self) -> None:
        with self._sending:
            newest = self._rows[-1][0] if self._rows else None
            rows = tuple(row for fence, row in self._rows if fence == newest)
            self._untold = None
            if newest is not None:
                self._put_out(wire.StepsApplied(newest, rows))

    def wanted(self, held: Fence) -> wire.StartRendezvous | None:
        """The change the coordinator has asked for beyond the world this worker is in."""
        with self._changed:
            if self.stop is not None or self.refusal is not None:
                self.check()
            return self._reform if self._reform is not None and self._reform.fence > held else None

    def asked_at(self) -> float:
        return self._reform_at

    def wait_reform(self, held: Fence, timeout: float | None = None) -> wire.StartRendezvous | None:
        with self._changed:
            self._changed.wait_for(lambda: self._over() or self._newer(held) is not None, timeout)
            self.check()
            return self._newer(held)

    def _newer(self, held: Fence) -> wire.StartRendezvous | None:
        return self._reform if self._reform is not None and self._reform.fence > held else None

    def _overtaken(self, fence: Fence) -> bool:
        """A world that was agreed on is entered even if the next is planned already: its first boundary is soon.

        Otherwise state that only a leaving worker holds would never be handed over.
        """
        newer = self._newer(fence)
        return newer is not None and newer.urgent

    def wait_go(self, fence: Fence) -> wire.StartWorld:
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._over() or self._newer(fence) is not None or (self._go is not None and self._go.fence == fence)
                )
            )
            self.check()
            if self._overtaken(fence) or self._go is None or self._go.fence != fence:
                raise Superseded
            return self._go

    def wait_values(self, fence: Fence, keys: list[str], timeout: float) -> None:
        with self._changed:
            ready = self._changed.wait_for(
                lambda: self._over() or self._overtaken(fence) or all((fence, key) in self._values for key in keys),
                timeout,
            )
            if self._over() or self._overtaken(fence):
                raise Superseded
            if not ready:
                raise TimeoutError(f"no member of the new world published {keys} within {timeout} s")

    def do_until_overtaken(self, fence: Fence, work: Callable[[], T], timeout: float) -> T:
        """Do what may wait for a member of this world for ever; leave it as soon as that is known to be in vain."""
        ended: list[tuple[T | None, BaseException | None]] = []

        def aside() -> None:
            try:
                outcome: tuple[T | None, BaseException | None] = work(), None
            except BaseException as error:  # raised where it is waited for
                outcome = None, error
            with self._changed:
                ended.append(outcome)
                self._changed.notify_all()

        threading.Thread(target=aside, name="elastic-forming", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: bool(ended) or self._over() or self._overtaken(fence), timeout)
            if not ended and (self._over() or self._overtaken(fence)):
                raise Superseded
            if not ended:
                raise TimeoutError(f"the members of the new world did not connect within {timeout} s")
        made, error = ended[0]
        if error is not None:
            raise error
        return cast(T, made)

    def has_values(self, fence: Fence, keys: list[str]) -> bool:
        with self._changed:
            return all((fence, key) in self._values for key in keys)

    def value(self, fence: Fence, key: str) -> bytes:
        with self._changed:
            return self._values[fence, key]

    def put(self, fence: Fence, key: str, value: bytes) -> None:
        with self._changed:
            self._values[fence, key] = value
            self._changed.notify_all()
        self.send(wire.StoreValue(fence, key, base64.b64encode(value).decode()))

    def wait_stop_or_reform(self, held: Fence) -> wire.Stop | None:
        with self._changed:
            self._changed.wait_for(lambda: self._over() or self._newer(held) is not None)
            return self.stop

    def _over(self) -> bool:
        return self.stop is not None or self.refusal is not None

    def check(self) -> None:
        """Raise what ends this worker's part in the job."""
        if self.refusal is not None:
            raise Rejected(self.refusal.code, self.refusal.reason, hint=self.refusal.hint)
        if self.stop is not None:
            raise WorkerStopped(self.stop)

    def close(self) -> None:
        self._closing = True
        held = self._socket
        if held is not None:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
        # A thread that still runs while the interpreter ends can hold it up.
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)


class WorkerStopped(Exception):
    """The coordinator has told this worker to stop."""

    def __init__(self, stop: wire.Stop) -> None:
        super().__init__(stop.message)
        self.stop = stop


def parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise ElasticError("BadAddress", f"{text!r} is not an address", hint="give host:port")
    return host, int(port)
