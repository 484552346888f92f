"""The shim: containers as processes, their logs, their end, and what can be asked of a running one."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.node import support

from torchyard.node.runtime.rootfs_steps import Mount
from torchyard.node.shim import legacy, namespace_holder, records, wire, zygote
from torchyard.node.shim.client import ShimClient, ShimNotRunning, ShimRequestError

RUNGS = ["sandbox", "process"]


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


@pytest.fixture(autouse=True)
def _state(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()


@pytest.fixture(params=RUNGS)
def sandboxed(request: pytest.FixtureRequest) -> bool:
    if request.param == "sandbox":
        support.need_sandbox()
    return bool(request.param == "sandbox")


async def execute(pod: ShimClient, name: str, argv: list[str], *, text: bytes = b"") -> tuple[int | str, bytes]:
    """Run a command beside a container; returns its exit code (or the error) and its output."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    async with await pod.channel() as channel:
        request = {"op": "exec", "container": name, "argv": argv, "tty": False}
        channel.send(request, [in_read, out_write, out_write])
        for descriptor in (in_read, out_write):
            os.close(descriptor)
        os.write(in_write, text)
        os.close(in_write)
        reply, _ = await channel.receive()
        if "started" not in reply:
            os.close(out_read)
            return str(reply), b""
        output = await asyncio.to_thread(_read_all, out_read)
        reply, _ = await channel.receive()
        return int(reply["exited"]), output


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


@pytest.mark.parametrize(
    ("command", "code", "reason", "killed_by"),
    [
        ("exit 0", 0, "Completed", None),
        ("exit 3", 3, "Error", None),
        ("kill -KILL $$", 137, "Error", 9),
        ("kill -TERM $$; exit 5", 5, "Error", None),
    ],
)
async def test_the_end_of_a_container_is_recorded(
    harness: support.ShimHarness, *, sandboxed: bool, command: str, code: int, reason: str, killed_by: int | None
) -> None:
    if "KILL" in command and sandboxed:
        pytest.skip("the first process of a pid namespace cannot kill itself")
    if "TERM" in command and not sandboxed:
        pytest.skip("only the first process of a pid namespace ignores signals it has no handler for")
    pod = await harness.pod("p", sandboxed=sandboxed)
    ended = await harness.run(pod, "main", ["sh", "-c", command], sandboxed=sandboxed)
    assert (ended["exitCode"], ended["reason"], ended.get("signal")) == (code, reason, killed_by)
    assert ended["startedAt"] <= ended["finishedAt"]


async def test_output_becomes_cri_lines_in_order(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    script = "for i in $(seq 200); do echo line $i; done; echo wrong >&2; printf unfinished"
    await harness.run(pod, "main", ["sh", "-c", script], sandboxed=sandboxed)
    lines = (pod.pod / "containers/main/0.log").read_text().splitlines()
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) [FP] .*")
    assert all(form.fullmatch(line) for line in lines)
    out = [line.split(" ", 3)[3] for line in lines if " stdout " in line]
    assert out == [f"line {number}" for number in range(1, 201)] + ["unfinished"]
    assert [line.split(" ", 3)[3] for line in lines if " P " in line] == ["unfinished"]  # as containerd
    assert [line.split(" ", 3)[3] for line in lines if " stderr " in line] == ["wrong"]


async def test_a_long_line_is_split_into_partial_entries(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    script = "head -c 50000 /dev/zero | tr '\\0' x; echo; echo end"
    await harness.run(pod, "main", ["sh", "-c", script], sandboxed=sandboxed)
    lines = [line.split(" ", 3) for line in (pod.pod / "containers/main/0.log").read_text().splitlines()]
    assert [tag for _, _, tag, _ in lines] == ["P", "P", "P", "F", "F"]
    assert "".join(text for *_, text in lines[:4]) == "x" * 50000


async def test_a_log_is_rotated_by_size_and_keeps_the_newest(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    log = {"path": str(pod.pod / "rotated.log"), "max_bytes": 100_000, "max_files": 3}
    await harness.run(pod, "main", ["seq", "200000"], sandboxed=sandboxed, log=log)
    log_files = sorted(path.name for path in pod.pod.glob("rotated.log*"))
    assert log_files == ["rotated.log", "rotated.log.1", "rotated.log.2"]
    numbers = [
        int(line.rsplit(" ", 1)[1])
        for name in ("rotated.log.2", "rotated.log.1", "rotated.log")
        for line in (pod.pod / name).read_text().splitlines()
    ]
    assert numbers == list(range(numbers[0], 200001))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["no-such-program"], 'exec: "no-such-program": executable file not found in $PATH'),
        (["/no/such/program"], 'exec: "/no/such/program": stat /no/such/program: no such file or directory'),
        (["/etc/passwd"], 'exec: "/etc/passwd": permission denied'),
    ],
)
async def test_a_program_that_cannot_be_started_is_recorded_with_its_error(
    harness: support.ShimHarness, *, sandboxed: bool, argv: list[str], message: str
) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    ended = await harness.run(pod, "main", argv, sandboxed=sandboxed)
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (128, "StartError", message)


async def test_an_attempt_is_started_once_however_often_it_is_requested(
    harness: support.ShimHarness, *, sandboxed: bool
) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    marks = pod.pod / "marks"
    marks.mkdir()
    mounts = {"mounts": [Mount(marks, "/marks")]} if sandboxed else {}
    where = "/marks" if sandboxed else str(marks)
    harness.create(pod, "main", ["sh", "-c", f"mktemp {where}/XXXXXX; sleep 60"], sandboxed=sandboxed, **mounts)
    replies = await asyncio.gather(*(pod.start("main", 0) for _ in range(5)), return_exceptions=True)
    assert any(isinstance(reply, dict) for reply in replies)
    record = await pod.start("main", 0)
    await _until(lambda: any(marks.iterdir()))
    # every later process of this pod is forked after those that the requests above could have started
    assert await execute(pod, "main", ["true"]) == (0, b"")
    assert len(list(marks.iterdir())) == 1
    assert {reply["pid"] for reply in replies if isinstance(reply, dict) and "pid" in reply} <= {record["pid"]}


async def test_exec_passes_streams_and_exit_code(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    harness.create(
        pod, "main", ["sleep", "60"], sandboxed=sandboxed, env={"PATH": support.DEFAULT_PATH, "COLOUR": "red"}
    )
    await pod.start("main", 0)
    assert await execute(pod, "main", ["sh", "-c", "cat; echo $COLOUR; exit 4"], text=b"sent ") == (4, b"sent red\n")
    failed, _ = await execute(pod, "main", ["no-such-program"])
    assert "executable file not found in $PATH" in str(failed)
    with pytest.raises(ShimRequestError, match="is not running"):
        await _refusal(pod, {"op": "exec", "container": "other", "argv": ["true"], "tty": True})


async def test_kubectl_cp_works_for_an_image_without_tar(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    room = pod.pod / "room"
    (room / "in").mkdir(parents=True)
    (room / "in" / "file").write_bytes(os.urandom(300_000))
    mounts = {"mounts": [Mount(room, str(room))]} if sandboxed else {}
    # a PATH that has no tar in it
    harness.create(pod, "main", ["/bin/sleep", "60"], sandboxed=sandboxed, env={"PATH": "/nowhere"}, **mounts)
    await pod.start("main", 0)
    code, archive = await execute(pod, "main", ["tar", "cf", "-", f"{room}/in"])
    assert code == 0
    (room / "out").mkdir()
    feeding = asyncio.create_task(_feed(pod, ["tar", "-xmf", "-", "-C", f"{room}/out"], archive))
    assert await feeding == 0
    copied = room / "out" / str(room).lstrip("/") / "in" / "file"
    assert copied.read_bytes() == (room / "in" / "file").read_bytes()
    code, output = await execute(pod, "main", ["tar", "--delete", "x"])
    assert (code, b"unsupported arguments" in output or b"not supported" in output) == (2, True)


async def _feed(pod: ShimClient, argv: list[str], data: bytes) -> int:
    """Run a command that reads a lot."""
    in_read, in_write = os.pipe()
    null = os.open("/dev/null", os.O_WRONLY)
    async with await pod.channel() as channel:
        channel.send({"op": "exec", "container": "main", "argv": argv, "tty": False}, [in_read, null, null])
        os.close(in_read)
        os.close(null)
        await channel.receive()
        await asyncio.to_thread(_write_all, in_write, data)
        reply, _ = await channel.receive()
    return int(reply["exited"])


def _write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


async def _refusal(pod: ShimClient, request: dict[str, object]) -> None:
    async with await pod.channel() as channel:
        channel.send(request)
        reply, _ = await channel.receive()
        raise ShimRequestError(reply["error"])


async def test_exec_with_a_terminal_sets_its_size(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    harness.create(pod, "main", ["sleep", "60"], sandboxed=sandboxed)
    await pod.start("main", 0)
    async with await pod.channel() as channel:
        size = {"rows": 11, "columns": 22}
        channel.send(
            {
                "op": "exec",
                "container": "main",
                "argv": ["sh", "-c", "test -t 0 && stty size"],
                "tty": True,
                "size": size,
            }
        )
        reply, files = await channel.receive()
        assert reply == {"started": True}
        assert (await channel.receive())[0] == {"exited": 0}
        assert os.read(files[0], 100) == b"11 22\r\n"
        os.close(files[0])


async def test_closing_the_connection_kills_the_exec_process(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    harness.create(pod, "main", ["sleep", "60"], sandboxed=sandboxed)
    await pod.start("main", 0)
    null = os.open("/dev/null", os.O_RDWR)
    out_read, out_write = os.pipe()
    channel = await pod.channel()
    channel.send({"op": "exec", "container": "main", "argv": ["sleep", "60"], "tty": False}, [null, out_write, null])
    os.close(out_write)
    await channel.receive()
    channel.close()
    # the pipe ends when the last process that could write to it is gone
    assert await asyncio.to_thread(_read_all, out_read) == b""
    os.close(null)


async def test_attach_copies_output_and_reaches_the_input(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    harness.create(pod, "main", ["sh", "-c", "read x; echo got $x"], sandboxed=sandboxed, stdin=True, stdin_once=True)
    await pod.start("main", 0)
    out_read, out_write = os.pipe()
    async with await pod.channel() as channel:
        channel.send({"op": "attach", "container": "main", "stdin": True}, [out_write])
        os.close(out_write)
        reply, files = await channel.receive()
        assert reply == {"tty": False, "stdin": True}
        os.write(files[0], b"it\n")
        os.close(files[0])
        assert await asyncio.to_thread(_read_all, out_read) == b"got it\n"
    await harness.ended(pod, "main")
    assert harness.output(pod, "main") == ["got it"]


async def test_a_subscriber_receives_every_state_change(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    async with await pod.channel() as channel:
        channel.send({"op": "subscribe"})
        await channel.receive()
        await harness.run(pod, "main", ["true"], sandboxed=sandboxed)
        states = [(await channel.receive())[0]["state"] for _ in range(2)]
    assert states == ["running", "exited"]


async def test_shutdown_leaves_no_process_behind(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    harness.create(pod, "main", ["sh", "-c", "sleep 60 & sleep 60"], sandboxed=sandboxed)
    started = await pod.start("main", 0)
    await pod.shutdown()
    ended = await harness.ended(pod, "main")
    assert ended["exitCode"] == 137
    assert not support.alive(started["pid"])
    for _ in range(6000):
        try:
            await pod.hello()
        except ShimNotRunning:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the shim still answers")


async def test_containers_die_with_a_killed_shim(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    harness.create(pod, "main", ["sleep", "60"], sandboxed=sandboxed)
    started = await pod.start("main", 0)
    os.kill((await pod.hello())["pid"], signal.SIGKILL)
    for _ in range(6000):
        if not support.alive(started["pid"]):
            break
        await asyncio.sleep(0.01)
    assert not support.alive(started["pid"])
    record = records.read_record(str(pod.pod), "main", 0)
    assert record
    assert record["state"] == "running", "no process could record the end"
    assert await harness.zygote.start_shim(pod.pod), "a new one"
    ended = await harness.ended(pod, "main")
    assert (ended["exitCode"], ended["message"]) == (137, records.LOST), "the next shim records it"
    assert not await harness.zygote.start_shim(pod.pod), "there is one"


async def test_a_shim_waits_for_the_lock_of_one_that_does_not_answer(
    harness: support.ShimHarness, *, sandboxed: bool
) -> None:
    """A child that a shim had just forked when it was killed has its lock for a moment."""
    pod = await harness.pod("p", sandboxed=sandboxed)
    os.kill((await pod.hello())["pid"], signal.SIGKILL)
    while (lock := zygote.lock_file(f"{pod.pod}/{records.SHIM_LOCK}")) is None:
        await asyncio.sleep(0.01)
    new_shim = asyncio.create_task(harness.zygote.start_shim(pod.pod))
    await asyncio.sleep(0.3)
    os.close(lock)
    assert await new_shim


async def test_a_pod_has_one_shim_and_survives_its_zygote(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    before = (await pod.hello())["pid"]
    await harness.zygote.start_shim(pod.pod)
    assert (await pod.hello())["pid"] == before
    await harness.zygote.shutdown()
    other = await harness.pod("q", sandboxed=sandboxed)
    assert (await pod.hello())["pid"] == before
    assert (await harness.run(other, "main", ["true"], sandboxed=sandboxed))["exitCode"] == 0


async def test_a_new_zygote_waits_for_the_old_one_to_end(harness: support.ShimHarness) -> None:
    """A zygote that is shutting down holds its lock for a moment longer than it replies."""
    with (harness.root / "zygote.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        starting = asyncio.create_task(harness.zygote.ensure())
        await _until((harness.root / "zygote.log").exists)
        await _until(lambda: len(_daemons(harness.root)) == 1)
        (pid,) = _daemons(harness.root)
        before = _sleeps(pid)
        await _until(lambda: _sleeps(pid) > before + 10)  # it sleeps between two tries to take the lock
        assert not starting.done()
    await starting
    pod = await harness.pod("p", sandboxed=False)
    assert (await harness.run(pod, "main", ["true"], sandboxed=False))["exitCode"] == 0


async def test_the_namespaces_of_a_version_0_1_node_are_used_again(harness: support.ShimHarness) -> None:
    support.need_sandbox()
    await harness.zygote.ensure()
    record = harness.root / namespace_holder.RECORD
    record.rename(harness.root / legacy.NAMESPACE_HOLDER_RECORD)
    await harness.zygote.shutdown()
    pod = await harness.pod("p")
    assert not record.exists(), "a new namespace holder would have written it"
    assert (await harness.run(pod, "main", ["true"]))["exitCode"] == 0


async def test_the_zygote_of_a_version_0_1_node_is_shut_down(harness: support.ShimHarness) -> None:
    with wire.listen(str(harness.root), legacy.ZYGOTE_SOCKET) as server:
        starting = asyncio.create_task(harness.zygote.ensure())
        channel, _ = await asyncio.to_thread(server.accept)
        with channel:
            assert await asyncio.to_thread(wire.receive, channel) == ({"op": "shutdown"}, [])
            wire.send(channel, {})
        await starting


def _daemons(root: Path) -> list[int]:
    """Processes of this node that have left the session of the test."""
    return [pid for pid in support.processes_with(str(root)) if os.getsid(pid) != os.getsid(0)]


def _sleeps(pid: int) -> int:
    """How often a process has gone to sleep."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def _spares(root: Path) -> set[int]:
    """Shims of this node that wait for a pod."""
    return {pid for pid in support.processes_with(str(root)) if support.name_of(pid) == "yard-spare"}


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(1500):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the condition was never met")


async def test_spare_shims_are_assigned_replaced_and_end_with_their_zygote(
    harness: support.ShimHarness,
) -> None:
    support.need_network()
    await harness.zygote.ensure()
    await _until(lambda: len(_spares(harness.root)) == zygote.SPARE_SHIMS)
    waiting = _spares(harness.root)
    wired = await harness.pod("wired", address="10.244.0.11")
    assert (await wired.hello())["pid"] in waiting
    alone = await harness.pod("alone")
    assert (await alone.hello())["pid"] not in waiting, "it has no use for a network"
    assert (await harness.run(wired, "main", ["hostname"]))["exitCode"] == 0
    assert harness.output(wired, "main") == ["wired"]
    await _until(lambda: len(_spares(harness.root)) == zygote.SPARE_SHIMS)
    for pid in _spares(harness.root):
        support.kill(pid)
    other = await harness.pod("other", address="10.244.0.12")  # forked, since those that waited are dead
    assert (await harness.run(other, "main", ["true"]))["exitCode"] == 0
    await harness.zygote.shutdown()
    await _until(lambda: not _spares(harness.root))
    assert (await wired.hello())["pid"] in waiting, "who has a pod stays"


async def test_memory_over_the_limit_is_an_out_of_memory_kill(harness: support.ShimHarness, *, sandboxed: bool) -> None:
    pod = await harness.pod("p", sandboxed=sandboxed)
    hungry = "import time; x = bytearray(120_000_000); time.sleep(60)"
    ended = await harness.run(pod, "main", [sys.executable, "-c", hungry], sandboxed=sandboxed, memory_limit=60_000_000)
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


async def test_two_pods_use_the_same_port_and_reach_each_other(harness: support.ShimHarness) -> None:
    support.need_network()
    serve = (
        "import socket; s = socket.create_server(('', 29500)); "
        "c, _ = s.accept(); c.sendall(socket.gethostname().encode()); c.close()"
    )
    pods = []
    for name, address in (("a", "10.244.0.11"), ("b", "10.244.0.12")):
        pod = await harness.pod(name, address=address)
        harness.create(pod, "main", [sys.executable, "-c", serve])
        await pod.start("main", 0)
        pods.append(pod)
    link = await _connect(pods[0], "10.244.0.12", 29500)
    assert await asyncio.get_running_loop().sock_recv(link, 10) == b"b"
    link.close()
    assert (await harness.ended(pods[1], "main"))["exitCode"] == 0
    with pytest.raises(ShimRequestError, match="connection refused"):
        await pods[0].connect("127.0.0.1", 9)


async def _connect(pod: ShimClient, host: str, port: int) -> socket.socket:
    for _ in range(6000):
        try:
            return await pod.connect(host, port)
        except ShimRequestError:
            await asyncio.sleep(0.01)
    raise AssertionError(f"{host}:{port} does not reply")


async def test_a_shim_runs_from_a_copy_of_the_interpreter_that_nobody_can_change(harness: support.ShimHarness) -> None:
    pod = await harness.pod("p", sandboxed=harness.sandboxed)
    program = f"/proc/{(await pod.hello())['pid']}/exe"
    assert Path(program).readlink().name.startswith("memfd:")
    with pytest.raises(OSError, match=r"Text file busy|Operation not permitted"):
        os.close(os.open(program, os.O_WRONLY))
