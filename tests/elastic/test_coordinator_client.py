"""The worker's end of the control stream: which world it enters, and what survives a lost connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from torchyard.elastic import wire
from torchyard.elastic.errors import ElasticError, Rejected
from torchyard.elastic.wire import NO_FENCE, Fence, StartRendezvous, StartWorld, StopCause, StoreValue, WorkerPhase
from torchyard.elastic.world import coordinator_wait
from torchyard.elastic.world.coordinator_client import CoordinatorClient, Superseded, WorkerStopped, parse_address

AGREED, NEXT = Fence(1, 1), Fence(1, 2)
WORLD = StartWorld(AGREED, ("a", "b"), 7, "a", ("b",), restore=False)


def create_client(*messages: wire.Message) -> tuple[CoordinatorClient, list[str]]:
    """A client that has received these messages, and the aborts that they caused."""
    aborts: list[str] = []
    proof, hello = wire.Authentication("j", "t", "b"), wire.Hello("b")
    client = CoordinatorClient(("127.0.0.1", 1), proof, lambda: hello, on_urgent=lambda: aborts.append("abort"))
    for message in messages:
        client._handle(message)
    return client, aborts


def test_an_agreed_world_is_entered_although_the_next_rendezvous_is_planned() -> None:
    """Otherwise a stream of new workers would keep a leaving worker from sending the state that only it holds."""
    client, aborts = create_client(
        StartRendezvous(AGREED, False, "a leaves"),
        WORLD,
        StoreValue(AGREED, "0", "eA=="),
        StartRendezvous(NEXT, False, "c joined"),
    )
    assert client.wait_world(AGREED) == WORLD
    client.wait_values(AGREED, ["0"], timeout=0)
    assert client.get_value(AGREED, "0") == b"x"
    assert client.pending_rendezvous(AGREED) == StartRendezvous(NEXT, False, "c joined")
    assert not aborts


def test_an_agreed_world_that_lost_a_member_is_not_entered() -> None:
    client, aborts = create_client(
        StartRendezvous(AGREED, False, "a leaves"), WORLD, StartRendezvous(NEXT, True, "a died")
    )
    with pytest.raises(Superseded):
        client.wait_world(AGREED)
    with pytest.raises(Superseded):
        client.wait_values(AGREED, ["0"], timeout=0)
    assert aborts == ["abort"]


def test_a_world_that_is_not_agreed_on_is_superseded_by_the_next_rendezvous() -> None:
    client, _ = create_client(StartRendezvous(AGREED, False, "b joined"), StartRendezvous(NEXT, False, "c joined"))
    with pytest.raises(Superseded):
        client.wait_world(AGREED)


def test_an_older_rendezvous_is_ignored() -> None:
    client, _ = create_client(StartRendezvous(NEXT, False, "c joined"), StartRendezvous(AGREED, False, "b joined"))
    assert client.wait_rendezvous(NO_FENCE, 0) == StartRendezvous(NEXT, False, "c joined")
    assert client.pending_rendezvous(NEXT) is None


def test_a_missing_store_value_is_named_in_the_timeout() -> None:
    client, _ = create_client(StartRendezvous(AGREED, False, "b joined"), WORLD)
    with pytest.raises(TimeoutError, match="0/peer"):
        client.wait_values(AGREED, ["0/peer"], timeout=0)


@pytest.mark.parametrize("message", [StartRendezvous(NEXT, True, "a died"), wire.Stop(StopCause.FINISHED, "30 steps")])
def test_forming_a_group_with_a_dead_peer_is_abandoned_at_once(message: wire.Message) -> None:
    client, _ = create_client(StartRendezvous(AGREED, False, "b joined"), WORLD)
    waiting, released = threading.Event(), threading.Event()

    def form() -> None:
        waiting.set()
        released.wait(600)

    def deliver() -> None:
        waiting.wait()
        client._handle(message)

    threading.Thread(target=deliver).start()
    with pytest.raises(Superseded):
        client.run_unless_superseded(AGREED, form, timeout=500)
    released.set()


def test_the_result_or_error_of_forming_a_group_is_returned() -> None:
    client, _ = create_client(
        StartRendezvous(AGREED, False, "b joined"), WORLD, StartRendezvous(NEXT, False, "c joined")
    )
    assert client.run_unless_superseded(AGREED, lambda: 5, timeout=500) == 5
    with pytest.raises(ValueError, match="no device"):
        client.run_unless_superseded(AGREED, lambda: int("no device"), timeout=500)
    released = threading.Event()
    with pytest.raises(TimeoutError, match="did not connect"):
        client.run_unless_superseded(AGREED, lambda: released.wait(600), timeout=0)
    released.set()


def test_the_end_of_the_job_ends_every_wait() -> None:
    client, _ = create_client(wire.Stop(StopCause.FINISHED, "30 steps"))
    with pytest.raises(WorkerStopped, match="30 steps"):
        client.wait_rendezvous(NO_FENCE)


def test_an_unexpected_error_of_the_clients_thread_ends_every_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that dies in silence would leave the training thread waiting for ever."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no file descriptors")

    client, aborts = create_client()
    monkeypatch.setattr(socket, "create_connection", fail)
    client.start()
    with pytest.raises(ElasticError, match="cannot be kept: RuntimeError: no file descriptors"):
        client.wait_rendezvous(NO_FENCE)
    with pytest.raises(ElasticError, match="no file descriptors"):
        client.wait_stop_or_rendezvous(NO_FENCE)
    with pytest.raises(ElasticError, match="no file descriptors"):
        client.pending_rendezvous(NO_FENCE)
    client.close()
    assert aborts == ["abort"]


def test_a_worker_that_waited_too_long_for_its_first_coordinator_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_wait, "JOIN_WITHIN", 0.0)
    client, _ = create_client()
    client.start()
    with pytest.raises(ElasticError, match=r"no coordinator has answered at 127\.0\.0\.1:1 ") as caught:
        client.wait_rendezvous(NO_FENCE)
    assert caught.value.code == "NoCoordinator"
    client.close()


def test_an_expelled_worker_with_a_working_connection_rejoins() -> None:
    client, _ = create_client(wire.Stop(StopCause.EXPELLED, "no sign of life"))
    assert client.stop is None


def test_a_rejection_is_raised_with_its_hint() -> None:
    client, aborts = create_client(wire.Rejection("OtherJob", "not this one", "check the address"))
    with pytest.raises(Rejected) as caught:
        client.wait_rendezvous(NO_FENCE)
    assert (caught.value.code, caught.value.hint, aborts) == ("OtherJob", "check the address", ["abort"])


def test_applied_steps_are_sent_in_batches_in_order_and_before_other_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = create_client()
    sent: list[wire.Message] = []
    monkeypatch.setattr(client, "_send_frame", sent.append)
    for step in (1, 2, 3):
        client.step_applied(AGREED, (step, 0.5, ""))
    client.send(wire.TrainingDone(3, "d"))
    client.step_applied(NEXT, (4, 0.4, ""))
    client.send(wire.Heartbeat(4, WorkerPhase.OUTSIDE))
    rows = [
        (message.fence, row[0]) for message in sent if isinstance(message, wire.StepsApplied) for row in message.rows
    ]
    assert rows == [(AGREED, 1), (AGREED, 2), (AGREED, 3), (NEXT, 4)]
    kinds = [type(message) for message in sent]
    assert kinds[-3:] == [wire.TrainingDone, wire.StepsApplied, wire.Heartbeat]
    assert kinds.count(wire.StepsApplied) == 3, "the first at once, the next two together, the last of another world"


def test_the_steps_of_the_present_world_are_sent_again_to_a_new_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = create_client()
    sent: list[wire.Message] = []
    monkeypatch.setattr(client, "_send_frame", sent.append)
    for fence, step in ((AGREED, 1), (NEXT, 2), (NEXT, 3)):
        client.step_applied(fence, (step, None, ""))
    sent.clear()
    client._resend_rows()
    client.send(wire.Heartbeat(3, WorkerPhase.OUTSIDE))
    assert sent == [wire.StepsApplied(NEXT, ((2, None, ""), (3, None, ""))), wire.Heartbeat(3, WorkerPhase.OUTSIDE)]


@pytest.mark.parametrize("text", ["nowhere", "host:", ":1", "host:port"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="not an address"):
        parse_address(text)


class ScriptedCoordinator:
    """A listener that reads and writes frames as a test says."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(60)
        self.connection: socket.socket | None = None

    def accept(self) -> None:
        self.close_connection()
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(60)
        assert isinstance(self.receive(), wire.Authentication)
        assert isinstance(self.receive(), wire.Hello)

    def receive(self) -> wire.Message:
        while isinstance(message := wire.decode(self._read(wire.frame_length(self._read(4)))), wire.Heartbeat):
            pass
        return message

    def _read(self, size: int) -> bytes:
        assert self.connection is not None
        data = b""
        while len(data) < size:
            data += self.connection.recv(size - len(data)) or pytest.fail("the client closed its connection")
        return data

    def send(self, message: wire.Message) -> None:
        assert self.connection is not None
        self.connection.sendall(wire.encode(message))

    def close_connection(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def close(self) -> None:
        self.close_connection()
        self.listener.close()


@pytest.fixture
def scripted() -> Iterator[tuple[ScriptedCoordinator, CoordinatorClient]]:
    coordinator = ScriptedCoordinator()
    address = coordinator.listener.getsockname()
    client = CoordinatorClient(
        address, wire.Authentication("j", "t", "b"), lambda: wire.Hello("b"), on_urgent=lambda: None
    )
    client.start()
    coordinator.accept()
    yield coordinator, client
    client.close()
    coordinator.close()


def test_a_report_that_was_lost_with_its_connection_is_repeated(
    scripted: tuple[ScriptedCoordinator, CoordinatorClient],
) -> None:
    """The coordinator waits for it: without the repetition, no world would ever form."""
    coordinator, client = scripted
    coordinator.send(StartRendezvous(AGREED, True, "a died"))
    assert client.wait_rendezvous(NO_FENCE, timeout=60) is not None
    coordinator.close_connection()
    report = wire.ReportProgress(AGREED, wire.WorkerProgress())
    worlds: list[StartWorld] = []

    def wait() -> None:
        client.report(report)
        worlds.append(client.wait_world(AGREED))

    waiting = threading.Thread(target=wait)
    waiting.start()
    coordinator.accept()
    assert coordinator.receive() == report
    coordinator.send(WORLD)
    waiting.join(60)
    assert worlds == [WORLD]
    coordinator.accept()  # the report was answered: it is not repeated any more
    client.leave("it got SIGTERM")
    assert coordinator.receive() == wire.LeaveRequest("it got SIGTERM")
    coordinator.accept()
    assert coordinator.receive() == wire.LeaveRequest("it got SIGTERM")


@pytest.mark.parametrize(
    "frame", [b"\xff\xff\xff\xff", b"\0\0\0\x02{}", b"\0\0\0\x04null", wire.encode(StoreValue(AGREED, "k", "%"))]
)
def test_a_message_that_is_not_valid_does_not_end_the_client(
    scripted: tuple[ScriptedCoordinator, CoordinatorClient], frame: bytes
) -> None:
    coordinator, client = scripted
    assert coordinator.connection is not None
    coordinator.connection.sendall(frame)
    coordinator.accept()
    coordinator.send(StartRendezvous(AGREED, False, "a joined"))
    assert client.wait_rendezvous(NO_FENCE, timeout=60) is not None
