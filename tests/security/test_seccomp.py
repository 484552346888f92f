"""The seccomp filter: RuntimeDefault unless a pod asks for another, on every way into a container."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import platform
import random
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.security.sandbox_support import python_output

from torchyard.node.runtime.rootfs_steps import Mount
from torchyard.node.runtime.seccomp import default_profile, filters, profile, syscall_table
from torchyard.node.runtime.seccomp.compiler import compile_profile
from torchyard.node.shim.client import ShimClient

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050000 | 38, 0x80000000
AUDIT = {
    "SCMP_ARCH_X86_64": 0xC000003E,
    "SCMP_ARCH_X32": 0xC000003E,
    "SCMP_ARCH_X86": 0x40000003,
    "SCMP_ARCH_AARCH64": 0xC00000B7,
    "SCMP_ARCH_ARM": 0x40000028,
}
SYS_ADMIN, SYS_NICE = 21, 23


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    support.need_seccomp()
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


# Calls that an unfiltered process of the sandbox makes with another result.
DENIED = """
import signal
results = {
    "unshare": call("unshare", 0x10000000),
    "clone": call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0),
    "keyctl": call("keyctl", 0, -3, 0, 0, 0),
    "add_key": call("add_key", b"user", b"torchyard", b"x", 1, -3),
    "io_uring_setup": call("io_uring_setup", 0, 0),
    "get_mempolicy": call("get_mempolicy", 0, 0, 0, 0, 0),
    "kcmp": call("kcmp", os.getpid(), os.getpid(), 0, 0, 0),
    "AF_VSOCK": call("socket", 40, 1, 0),
    "AF_VSOCK with high bits": call("socket", 40 | 1 << 32, 1, 0),
    "personality": call("personality", 0x0040000),
}
status = [line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:")]
print(json.dumps({"denied": results, "clone3": call("clone3", 0, 0), "status": status}))
"""


async def test_runtime_default_denies_what_containers_may_not_call(harness: support.ShimHarness) -> None:
    report = await python_output(harness, DENIED)
    assert report["status"] == ["2"]
    assert {name: number for name, number in report["denied"].items() if number != errno.EPERM} == {}
    assert report["clone3"] == errno.ENOSYS, "so that the C library falls back to clone"


@pytest.mark.parametrize("uid", [0, 1234])
@pytest.mark.parametrize("no_new_privileges", [False, True])
async def test_every_user_is_filtered_with_and_without_no_new_privs(
    harness: support.ShimHarness, uid: int, no_new_privileges: bool
) -> None:
    program = (
        "lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(json.dumps([call('unshare', 0x10000000), lines['Seccomp'].strip(), lines['NoNewPrivs'].strip()]))"
    )
    user = {"uid": uid, "gid": uid, "groups": []}
    report = await python_output(harness, program, user=user, no_new_privileges=no_new_privileges)
    assert report == [errno.EPERM, "2", str(int(no_new_privileges))]


async def test_unconfined_and_privileged_containers_have_no_filter(harness: support.ShimHarness) -> None:
    program = "print(json.dumps([l.split()[1] for l in open('/proc/self/status') if l.startswith('Seccomp:')]))"
    assert await python_output(harness, program, seccomp="") == ["0"]
    assert await python_output(harness, program, privileged=True) == ["0"]


async def test_processes_of_exec_are_filtered_too(harness: support.ShimHarness) -> None:
    """kubectl exec, exec probes and lifecycle handlers are all exec requests to the shim."""
    pod = await harness.pod("p")
    harness.create(pod, "main", ["sleep", "60"])
    await pod.start("main", 0)
    assert await _exec(pod, "grep Seccomp: /proc/self/status; unshare -U true 2>/dev/null || echo denied") == [
        "Seccomp:\t2",
        "denied",
    ]


async def _exec(pod: ShimClient, script: str) -> list[str]:
    read, write = os.pipe()
    with open(os.devnull, "r+b") as null:
        files = [null.fileno(), write, null.fileno()]
        channel = await pod.exec_channel(
            {"op": "exec", "container": "main", "argv": ["sh", "-c", script], "tty": False}, files
        )
    os.close(write)
    async with channel:
        await channel.exec_started()
        await channel.exec_exited()
    with open(read) as output:
        return output.read().splitlines()


async def test_a_capability_allows_its_system_calls(harness: support.ShimHarness) -> None:
    program = "print(json.dumps([call('get_mempolicy', 0, 0, 0, 0, 0), call('clone3', 0, 0)]))"
    without = await python_output(harness, program)
    assert without == [errno.EPERM, errno.ENOSYS]
    report = await python_output(harness, program, capabilities=[*support.CAPABILITIES, SYS_NICE, SYS_ADMIN])
    assert report[0] != errno.EPERM
    assert report[1] == errno.EINVAL


async def test_threads_sockets_and_shared_memory_work(harness: support.ShimHarness) -> None:
    """What training does: threads, processes, futexes, sockets, shared memory, CPU affinity, timers."""
    program = """
import concurrent.futures, multiprocessing, socket, threading, time, mmap, select, signal, asyncio, subprocess
def double(number): return number * 2
with concurrent.futures.ThreadPoolExecutor(16) as pool: assert sum(pool.map(double, range(100))) == 9900
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(double, [1, 2]) == [2, 4]
left, right = socket.socketpair(); left.send(b"x"); assert right.recv(1) == b"x"
for family, kind in ((socket.AF_INET, 1), (socket.AF_INET, 2), (socket.AF_UNIX, 1), (socket.AF_NETLINK, 3)):
    socket.socket(family, kind).close()
mmap.mmap(-1, 1 << 20).close(); select.epoll().close(); os.memfd_create("x"); os.eventfd(0)
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1); asyncio.run(asyncio.sleep(0))
assert subprocess.run(["true"]).returncode == 0
print(json.dumps("fine"))
"""
    shared_memory = harness.root / "shm"
    shared_memory.mkdir()
    assert await python_output(harness, program, mounts=[Mount(shared_memory, "/dev/shm")]) == "fine"


async def test_a_localhost_profile_is_loaded_from_the_directory_of_the_node(harness: support.ShimHarness) -> None:
    directory = harness.root / filters.PROFILES
    directory.mkdir()
    document = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EXDEV},
            {"names": ["getpgid"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 7, "op": "SCMP_CMP_GT"}]},
        ],
    }
    (directory / "audit.json").write_text(json.dumps(document))
    path = filters.filter_file(harness.root, "localhost/audit.json", ())
    program = (
        "print(json.dumps([call('mkdirat', -100, b'/tmp/x', 0o777), call('getpgid', 0), call('getpgid', 8),"
        " call('getpgid', 1 << 40)]))"
    )
    assert await python_output(harness, program, seccomp=path) == [errno.EXDEV, 0, errno.EPERM, errno.EPERM]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "must be an object"),
        ({}, "defaultAction: None is not a supported action"),
        ({"defaultAction": "SCMP_ACT_NOTIFY"}, "SCMP_ACT_NOTIFY"),
        ({"defaultAction": "SCMP_ACT_ALLOW", "defaultErrnoRet": 1}, "has no error number"),
        ({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 70000}, "70000 is not an error number"),
        ({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"]}, "flags: not supported"),
        ({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": "read"}]}, r"syscalls\[0\].names"),
        ({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": {}}, None),
        ({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": 3}, "syscalls: must be a list"),
        (
            {
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{"names": ["x"], "action": "SCMP_ACT_KILL", "args": [{}]}],
            },
            r"syscalls\[0\].args\[0\].op",
        ),
    ],
)
def test_a_profile_that_is_not_valid_is_refused_with_its_field(tmp_path: Path, document: Any, text: str | None) -> None:
    (tmp_path / "seccomp").mkdir()
    (tmp_path / "seccomp" / "p.json").write_text(json.dumps(document))
    if text is None:
        assert filters.filter_file(tmp_path, "localhost/p.json", ())
        return
    with pytest.raises(profile.SeccompProfileError, match=text):
        filters.filter_file(tmp_path, "localhost/p.json", ())


@pytest.mark.parametrize("content", [None, b"{", b"\xff\xfe"])
def test_a_profile_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "seccomp").mkdir()
    if content is not None:
        (tmp_path / "seccomp" / "p.json").write_bytes(content)
    with pytest.raises(profile.SeccompProfileError, match=r'cannot load seccomp profile ".*/seccomp/p.json"'):
        filters.filter_file(tmp_path, "localhost/p.json", ())


@pytest.mark.parametrize("path", ["../p.json", "/etc/passwd", "a/../../p.json"])
def test_a_localhost_profile_stays_below_its_directory(tmp_path: Path, path: str) -> None:
    (tmp_path / "seccomp" / "a").mkdir(parents=True)
    (tmp_path / "p.json").write_text('{"defaultAction": "SCMP_ACT_ALLOW"}')
    with pytest.raises(profile.SeccompProfileError, match="must stay below"):
        filters.filter_file(tmp_path, f"localhost/{path}", ())


def run(program: bytes, number: int, architecture: str, arguments: tuple[int, ...] = (0,) * 6) -> int:
    """What the kernel would return for a call: an interpreter of classic BPF."""
    data = struct.pack("<IIQ6Q", number, AUDIT[architecture], 0, *arguments)
    instructions = list(struct.iter_unpack("=HBBI", program))
    position = accumulator = 0
    while True:
        code, if_true, if_false, constant = instructions[position]
        position += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, constant)[0]
        elif code == 0x06:
            return int(constant)
        elif code == 0x05:
            position += constant
        elif code == 0x54:
            accumulator &= constant
        else:
            holds = {0x15: accumulator == constant, 0x25: accumulator > constant, 0x35: accumulator >= constant}[code]
            position += if_true if holds else if_false


def default_program(machine: str, capabilities: tuple[int, ...] = support.CAPABILITIES) -> bytes:
    document = default_profile.runtime_default(machine, syscall_table.ARCHITECTURES[machine], capabilities)
    return compile_profile(profile.parse(document), machine)


ON_ARGUMENTS = {"socket", "personality", "clone"}


@pytest.mark.parametrize("machine", syscall_table.ARCHITECTURES)
def test_the_program_of_runtime_default_decides_every_call_of_every_architecture(machine: str) -> None:
    document = default_profile.runtime_default(machine, syscall_table.ARCHITECTURES[machine], support.CAPABILITIES)
    allowed = {*document["syscalls"][0]["names"], *ON_ARGUMENTS}
    program = default_program(machine)
    assert len(program) // 8 < 1000
    for architecture in syscall_table.ARCHITECTURES[machine]:
        table = syscall_table.numbers(architecture)
        newest = max(number for name, number in table.items() if name in allowed and number & 0xF0000 == 0)
        for name, number in table.items():
            newer = newest < number and number & 0xF0000 == 0
            expected = ALLOW if name in allowed else ENOSYS if name == "clone3" or newer else EPERM
            assert run(program, number, architecture) == expected, (architecture, name)
        assert run(program, newest + 1, architecture) == ENOSYS
        for flags in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
            assert run(program, table["clone"], architecture, (flags | 17, 0, 0, 0, 0, 0)) == EPERM, hex(flags)
        assert run(program, table["clone"], architecture, (0x3D0F00, 0, 0, 0, 0, 0)) == ALLOW, "a thread"
        assert run(program, table["personality"], architecture, (0x0040000, 0, 0, 0, 0, 0)) == EPERM


def test_calls_of_an_architecture_that_a_profile_does_not_name_kill_the_process() -> None:
    document = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": []}
    program = compile_profile(profile.parse(document), "x86_64")
    assert run(program, 3, "SCMP_ARCH_X86_64") == ALLOW
    assert run(program, 3, "SCMP_ARCH_X86") == KILL
    assert run(program, 3 | syscall_table.X32_BIT, "SCMP_ARCH_X32") == KILL


OPERATORS: dict[str, Callable[[int, int, int], bool]] = {
    "SCMP_CMP_NE": lambda argument, value, _: argument != value,
    "SCMP_CMP_LT": lambda argument, value, _: argument < value,
    "SCMP_CMP_LE": lambda argument, value, _: argument <= value,
    "SCMP_CMP_EQ": lambda argument, value, _: argument == value,
    "SCMP_CMP_GE": lambda argument, value, _: argument >= value,
    "SCMP_CMP_GT": lambda argument, value, _: argument > value,
    "SCMP_CMP_MASKED_EQ": lambda argument, value, wanted: argument & value == wanted,
}


def test_conditions_compare_64_bits() -> None:
    """Random rules against their definition, with values around the halves of a word."""
    source = random.Random(19)
    interesting = [0, 1, 7, 0xFFFFFFFF, 1 << 32, (1 << 32) + 7, 1 << 63, (1 << 64) - 1]
    read = syscall_table.numbers("SCMP_ARCH_X86_64")["read"]
    for _ in range(200):
        conditions: list[dict[str, Any]] = [
            {"index": index, "op": source.choice(list(OPERATORS)), "value": value, "valueTwo": value & wanted}
            for index, value, wanted in zip(
                source.sample(range(6), source.randint(1, 3)),
                source.choices(interesting, k=3),
                interesting,
                strict=False,
            )
        ]
        rule = {"names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 99, "args": conditions}
        program = compile_profile(profile.parse({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}), "x86_64")
        for _ in range(20):
            arguments = tuple(source.choices(interesting, k=6))
            holds = all(OPERATORS[c["op"]](arguments[c["index"]], c["value"], c["valueTwo"]) for c in conditions)
            expected = 0x00050000 | 99 if holds else ALLOW
            assert run(program, read, "SCMP_ARCH_X86_64", arguments) == expected, (conditions, arguments)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have no 32-bit calls by interrupt")
async def test_calls_of_the_32_bit_architecture_are_filtered(harness: support.ShimHarness) -> None:
    """`int 0x80` in a 64-bit process: unshare is number 310 there, getpid number 20."""
    program = """
import mmap
def by_interrupt(number, argument):
    # push rbx; mov eax, number; mov ebx, argument; int 0x80; pop rbx; ret
    code = b"\\x53\\xb8" + number.to_bytes(4, "little") + b"\\xbb" + argument.to_bytes(4, "little")
    code += b"\\xcd\\x80\\x5b\\xc3"
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()
print(json.dumps([by_interrupt(20, 0) == os.getpid(), by_interrupt(310, 0x10000000)]), flush=True)
os._exit(0)
"""
    pod = await harness.pod("p")
    try:
        report = await python_output(harness, program, pod=pod)
    except AssertionError as error:
        if "139" in str(error):
            pytest.skip("this kernel has no 32-bit calls")
        raise
    assert report == [True, -errno.EPERM]


def test_a_machine_without_seccomp_says_so() -> None:
    features = dataclasses.replace(support.machine(), sandbox_missing="", seccomp_missing="the kernel has none")
    assert features.labels()["torchyard.dev/seccomp"] == "none"
    assert ("seccomp", False, "the kernel has none") in features.lines()
    with_filter = dataclasses.replace(features, seccomp_missing="")
    assert with_filter.labels()["torchyard.dev/seccomp"] == "RuntimeDefault"
