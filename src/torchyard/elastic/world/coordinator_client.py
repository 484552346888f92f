"""The worker's end of the control stream: one thread that reads, sends heartbeats and reconnects. It knows no tensors.

The training thread never blocks on the coordinator while it trains: its messages are sent or kept for later, and it
picks up the coordinator's requests at the next step boundary. Only the formation of a world is waited for.
"""

from __future__ import annotations

import base64
import random
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar, cast

from torchyard.elastic import wire
from torchyard.elastic.errors import ElasticError, Rejected
from torchyard.elastic.wire import AppliedRow, Fence, Message, StopCause, WorkerPhase
from torchyard.elastic.world.coordinator_wait import CoordinatorWait

UNACKNOWLEDGED_MS = 20_000
"""How long heartbeats may go without the acknowledgement of the coordinator's machine before the worker reconnects."""
HEARTBEAT_EVERY = 0.2
BACKOFF = (0.05, 1.0)
KEPT_ROWS = 4096
SEND_ROWS_EVERY = 0.05
"""Applied steps are sent in batches: a message for each step would take CPU time from workers on the same machine."""

T = TypeVar("T")
_jitter = random.Random()
"""Not the global generator: the training seeds that one, and a thread must not draw from it."""


class Superseded(Exception):
    """A newer world was announced, or the job ended, before the awaited world was formed."""


class WorkerStopped(Exception):
    """The coordinator has stopped this worker."""

    def __init__(self, stop: wire.Stop) -> None:
        super().__init__(stop.message)
        self.stop = stop


@dataclass(slots=True)
class HeartbeatState:
    """What the training thread does; the next heartbeat reports it."""

    step: int = 0
    phase: WorkerPhase = WorkerPhase.STARTING
    cost: float = 0.0


class CoordinatorClient:
    """A connection to the coordinator that is restored whenever it breaks.

    Args:
        address: host and port of the coordinator.
        authentication: the first message of every connection.
        hello: returns the second message of every connection.
        on_urgent: called from the client's thread when blocked collectives must be aborted.
    """

    def __init__(
        self,
        address: tuple[str, int],
        authentication: wire.Authentication,
        hello: Callable[[], wire.Hello],
        *,
        on_urgent: Callable[[], None],
    ) -> None:
        self._address = address
        self._authentication = authentication
        self._hello = hello
        self._on_urgent = on_urgent
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._socket: socket.socket | None = None
        self._rendezvous: wire.StartRendezvous | None = None
        self._rendezvous_at = 0.0
        self._world: wire.StartWorld | None = None
        self._values: dict[tuple[Fence, str], bytes] = {}
        self._rows: deque[tuple[Fence, AppliedRow]] = deque(maxlen=KEPT_ROWS)
        self._unsent_rows: tuple[Fence, list[AppliedRow]] | None = None
        self._rows_sent_at = 0.0
        self._report: wire.ReportProgress | None = None
        self._leave: wire.LeaveRequest | None = None
        self._done: wire.TrainingDone | None = None
        self._closing = False
        self._wait = CoordinatorWait(address)
        self.heartbeat_state = HeartbeatState()
        self.stop: wire.Stop | None = None
        self.rejection: wire.Rejection | None = None
        self._failure: BaseException | None = None
        self.lost_at: float | None = None
        self.own_address = "127.0.0.1"
        self._thread = threading.Thread(target=self._run, name="elastic-client", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def fileno(self) -> int:
        connection = self._socket
        return connection.fileno() if connection is not None else -1

    def _run(self) -> None:
        """Keep the connection. If that itself fails, the training thread raises the error: it would wait for ever."""
        try:
            self._keep_connected()
        except BaseException as error:  # the training thread raises it
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            self._on_urgent()

    def _keep_connected(self) -> None:
        pause = BACKOFF[0]
        while not self._closing:
            try:
                connection = socket.create_connection(self._address, timeout=5)
            except OSError as error:
                self.lost_at = self.lost_at or time.monotonic()
                self._wait.failed(error)
                time.sleep(pause * _jitter.uniform(0.7, 1.3))
                pause = min(pause * 2, BACKOFF[1])
                continue
            pause = BACKOFF[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: a machine that is gone sends no end of the connection
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
            try:
                self._run_connection(connection)
            except (OSError, EOFError) as error:
                self._wait.failed(error)
            except ElasticError as error:
                sys.stderr.write(f"coordinator sent an invalid message, reconnecting: error={error.message}\n")
            finally:
                self._socket = None
                connection.close()
            self.lost_at = time.monotonic()
            if self.rejection is not None:
                return
            time.sleep(BACKOFF[0])

    def _run_connection(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with self._sending:
            connection.sendall(wire.encode_opening(self._authentication, self._hello()))
            self._socket = connection
        self.own_address = connection.getsockname()[0]
        self.lost_at = None
        self._resend_rows()
        self._repeat_requests()
        received = bytearray()
        poll = select.poll()  # unlike `select`, it accepts any file descriptor
        poll.register(connection, select.POLLIN)
        heartbeat_at = time.monotonic() + HEARTBEAT_EVERY
        while not self._closing:
            wait = max(0.0, heartbeat_at - time.monotonic())
            if poll.poll(wait * 1000):
                chunk = connection.recv(1 << 16)
                if not chunk:
                    raise EOFError
                self._wait.answered()
                received += chunk
                self._handle_frames(received)
            if time.monotonic() >= heartbeat_at:
                heartbeat_at = time.monotonic() + HEARTBEAT_EVERY
                state = self.heartbeat_state
                self.send(wire.Heartbeat(state.step, state.phase, round(state.cost, 6)))

    def _handle_frames(self, received: bytearray) -> None:
        """Handle all complete frames, and leave the rest in `received`."""
        while len(received) >= wire.LENGTH.size:
            end = wire.LENGTH.size + wire.frame_length(bytes(received[: wire.LENGTH.size]))
            if len(received) < end:
                return
            message = wire.decode(bytes(received[wire.LENGTH.size : end]))
            del received[:end]
            self._handle(message)

    def _handle(self, message: Message) -> None:
        urgent = False
        with self._changed:
            match message:
                case wire.StartRendezvous(fence=fence):
                    if self._rendezvous is None or fence > self._rendezvous.fence:
                        self._rendezvous, self._rendezvous_at = message, time.monotonic()
                        oldest = self._world.fence if self._world is not None and not message.urgent else fence
                        self._values = {key: value for key, value in self._values.items() if key[0] >= oldest}
                    urgent = message.urgent
                case wire.StartWorld():
                    self._world = message
                case wire.StoreValue(fence=fence, key=key, value=value):
                    self._values[fence, key] = _decode_value(value)
                case wire.Stop(cause=cause):
                    # An expelled worker whose connection still works was only slow: it rejoins as a new worker.
                    if cause is not StopCause.EXPELLED:
                        self.stop = message
                        # A job that another worker's program has ended early must not wait for a collective.
                        urgent = cause is StopCause.FAILED or (message.ends_training and self._done is None)
                case wire.Rejection():
                    self.rejection = message
                    urgent = True
            self._changed.notify_all()
        if urgent:
            self._on_urgent()

    def send(self, message: Message) -> None:
        """Send a message if there is a connection. `Hello` and the repeated requests make up for one that is lost."""
        with self._sending:
            self._send_rows()
            self._send_frame(message)

    def _send_frame(self, message: Message) -> None:
        connection = self._socket  # another thread may drop it meanwhile
        if connection is None:
            return
        try:
            connection.sendall(wire.encode(message))
        except OSError:
            connection.close()
            self._socket = None

    def report(self, message: wire.ReportProgress) -> None:
        """Report to a rendezvous; repeated on a new connection until `wait_world` returns.

        The coordinator waits for the report of every participant, so a report must not be lost with a connection.
        """
        with self._sending:
            self._report = message
            self._send_rows()
            self._send_frame(message)

    def leave(self, reason: str) -> None:
        """Ask to leave the world; repeated on a new connection."""
        with self._sending:
            self._leave = wire.LeaveRequest(reason)
            self._send_rows()
            self._send_frame(self._leave)

    def report_done(self, message: wire.TrainingDone) -> None:
        """Report the end of the training; repeated on a new connection."""
        with self._sending:
            self._done = message
            self._send_rows()
            self._send_frame(message)

    def _repeat_requests(self) -> None:
        with self._sending:
            for message in (self._report, self._leave, self._done):
                if message is not None:
                    self._send_frame(message)

    def step_applied(self, fence: Fence, row: AppliedRow) -> None:
        """Report an applied step of this world, soon and before any other message."""
        with self._sending:
            self._rows.append((fence, row))
            if self._unsent_rows is None or self._unsent_rows[0] != fence:
                self._send_rows()
                self._unsent_rows = (fence, [])
            self._unsent_rows[1].append(row)
            if time.monotonic() - self._rows_sent_at >= SEND_ROWS_EVERY:
                self._send_rows()

    def _send_rows(self) -> None:
        if self._unsent_rows is not None:
            (fence, rows), self._unsent_rows = self._unsent_rows, None
            self._rows_sent_at = time.monotonic()
            self._send_frame(wire.StepsApplied(fence, tuple(rows)))

    def _resend_rows(self) -> None:
        """Send the steps of the present world again, to a coordinator that may not have them."""
        with self._sending:
            newest = self._rows[-1][0] if self._rows else None
            rows = tuple(row for fence, row in self._rows if fence == newest)
            self._unsent_rows = None
            if newest is not None:
                self._send_frame(wire.StepsApplied(newest, rows))

    def pending_rendezvous(self, current: Fence) -> wire.StartRendezvous | None:
        """Return the rendezvous that is to end the world `current`, if there is one; raise if the worker must stop."""
        with self._changed:
            if self._stopped():
                self.raise_if_stopped()
            return self._newer_rendezvous(current)

    def rendezvous_requested_at(self) -> float:
        return self._rendezvous_at

    def wait_rendezvous(self, current: Fence, timeout: float | None = None) -> wire.StartRendezvous | None:
        """Wait for a rendezvous newer than `current`."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped() or self._newer_rendezvous(current) is not None, timeout)
            self.raise_if_stopped()
            return self._newer_rendezvous(current)

    def _newer_rendezvous(self, current: Fence) -> wire.StartRendezvous | None:
        return self._rendezvous if self._rendezvous is not None and self._rendezvous.fence > current else None

    def _superseded(self, fence: Fence) -> bool:
        """Return whether the world must not be entered.

        A world that was agreed on is entered even if a rendezvous at its first step boundary is planned already.
        Otherwise state that only a leaving worker holds would never be sent.
        """
        newer = self._newer_rendezvous(fence)
        return newer is not None and newer.urgent

    def wait_world(self, fence: Fence) -> wire.StartWorld:
        """Wait for the start of the world `fence`; raise Superseded if it will not start."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._stopped()
                    or self._newer_rendezvous(fence) is not None
                    or (self._world is not None and self._world.fence == fence)
                )
            )
            self._report = None
            self.raise_if_stopped()
            if self._superseded(fence) or self._world is None or self._world.fence != fence:
                raise Superseded
            return self._world

    def wait_values(self, fence: Fence, keys: list[str], timeout: float) -> None:
        """Wait until the members of the world have stored these keys."""
        with self._changed:
            ready = self._changed.wait_for(
                lambda: self._stopped() or self._superseded(fence) or all((fence, key) in self._values for key in keys),
                timeout,
            )
            if self._stopped() or self._superseded(fence):
                raise Superseded
            if not ready:
                raise TimeoutError(f"no member of the new world published {keys} within {timeout} s")

    def run_unless_superseded(self, fence: Fence, work: Callable[[], T], timeout: float) -> T:
        """Run `work`, which may wait for a member of this world for ever; abandon it when the world is superseded."""
        results: list[tuple[T | None, BaseException | None]] = []

        def run() -> None:
            try:
                result: tuple[T | None, BaseException | None] = work(), None
            except BaseException as error:  # the waiting thread raises it
                result = None, error
            with self._changed:
                results.append(result)
                self._changed.notify_all()

        threading.Thread(target=run, name="elastic-forming", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: bool(results) or self._stopped() or self._superseded(fence), timeout)
            if not results and (self._stopped() or self._superseded(fence)):
                raise Superseded
            if not results:
                raise TimeoutError(f"the members of the new world did not connect within {timeout} s")
        value, error = results[0]
        if error is not None:
            raise error
        return cast(T, value)

    def has_values(self, fence: Fence, keys: list[str]) -> bool:
        with self._changed:
            return all((fence, key) in self._values for key in keys)

    def get_value(self, fence: Fence, key: str) -> bytes:
        with self._changed:
            return self._values[fence, key]

    def set_value(self, fence: Fence, key: str, value: bytes) -> None:
        """Store a value for all members of the world."""
        with self._changed:
            self._values[fence, key] = value
            self._changed.notify_all()
        self.send(wire.StoreValue(fence, key, base64.b64encode(value).decode()))

    def wait_stop_or_rendezvous(self, current: Fence) -> wire.Stop | None:
        """Wait for the end of the job or a rendezvous newer than `current`; return the `Stop` in the first case."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped() or self._newer_rendezvous(current) is not None)
            self._raise_failure()
            return self.stop

    def _stopped(self) -> bool:
        return self.stop is not None or self.rejection is not None or self._failure is not None

    def _raise_failure(self) -> None:
        if isinstance(self._failure, ElasticError):
            raise self._failure
        if self._failure is not None:
            text = f"the connection to the coordinator cannot be kept: {type(self._failure).__name__}: {self._failure}"
            raise ElasticError("ClientFailed", text) from self._failure

    def raise_if_stopped(self) -> None:
        """Raise if the coordinator has stopped or rejected this worker, or if it can no longer be reached."""
        self._raise_failure()
        if self.rejection is not None:
            raise Rejected(self.rejection.code, self.rejection.reason, hint=self.rejection.hint)
        if self.stop is not None:
            raise WorkerStopped(self.stop)

    def close(self) -> None:
        self._closing = True
        connection = self._socket
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        # A thread that still runs while the interpreter exits can block it.
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)


def _decode_value(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ElasticError("BadMessage", f"a value of the store is not valid base64: {error}") from error


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of an address such as `10.0.0.1:29400`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 1 << 16:
        raise ElasticError("BadAddress", f"{text!r} is not an address", hint="use HOST:PORT")
    return host, int(port)
