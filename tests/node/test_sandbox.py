"""The sandbox: what a container sees, and what it does not."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node import support

from torchyard.node.runtime.rootfs_steps import Mount
from torchyard.node.shim import beneath


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[support.ShimHarness]:
    support.need_sandbox()
    (tmp_path / "node").mkdir()
    async with support.shim_harness(tmp_path / "node") as harness:
        yield harness


async def output_of(harness: support.ShimHarness, script: str, **more: object) -> list[str]:
    pod = await harness.pod("p")
    ended = await harness.run(pod, "main", ["sh", "-c", script], **more)
    assert ended["exitCode"] == 0, (ended, harness.output(pod, "main"))
    return harness.output(pod, "main")


# The interpreter is shown where it is, which may be below /tmp.
TMP = f"ls /tmp | grep -vx '{Path(sys.prefix).parts[2]}'" if sys.prefix.startswith("/tmp/") else "ls /tmp"


async def test_a_container_has_its_own_host_name_processes_and_tmp(
    harness: support.ShimHarness, tmp_path: Path
) -> None:
    lines = await output_of(
        harness, f"hostname; echo $$; {TMP} | wc -l; ls /proc | grep -c '^[0-9]'; touch /tmp/x /data"
    )
    assert lines[:3] == ["p", "1", "0"]
    assert int(lines[3]) < 6


async def test_a_container_sees_neither_home_directories_nor_the_node_state(
    harness: support.ShimHarness, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("x")
    lines = await output_of(
        harness, f"ls -A /home; test -e {tmp_path}/secret && echo seen; test -e /etc/shadow && echo shadow; true"
    )
    assert lines == []


async def test_volumes_are_mounted_at_any_path(harness: support.ShimHarness, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "file"
    data.mkdir()
    (data / "in").write_text("from outside")
    file.write_text("a file")
    mounts = [
        Mount(data, "/data"),
        Mount(data, "/deep/er/path"),
        Mount(data, "/usr/share/torchyard-new/below"),
        Mount(file, "/etc/app/settings"),
        Mount(data, "/read-only", read_only=True),
    ]
    script = (
        "for f in /data/in /deep/er/path/in /usr/share/torchyard-new/below/in /etc/app/settings; "
        "do cat $f; echo; done; "
        "echo new > /data/out; echo bad > /read-only/out || echo refused; ls /usr/share/doc >/dev/null && echo kept"
    )
    lines = await output_of(harness, script, mounts=mounts)
    assert lines[:4] == ["from outside"] * 3 + ["a file"]
    assert {"refused", "kept"} <= set(lines)
    assert (data / "out").read_text() == "new\n"


async def test_the_machines_programs_are_read_only(harness: support.ShimHarness) -> None:
    lines = await output_of(
        harness, "touch /usr/bin/mine 2>/dev/null || echo refused; touch /etc/passwd.new && echo own-etc"
    )
    assert lines == ["refused", "own-etc"]


async def test_a_container_runs_as_its_user(harness: support.ShimHarness) -> None:
    lines = await output_of(
        harness, "id -u; id -g; touch /tmp/mine && echo wrote", user={"uid": 1234, "gid": 2345, "groups": []}
    )
    assert lines == ["1234", "2345", "wrote"]


@pytest.mark.parametrize("uid", [0, 1234])
async def test_a_container_has_the_default_capabilities_only(harness: support.ShimHarness, uid: int) -> None:
    if uid and os.geteuid():
        pytest.skip("another number is a user namespace of its own for an ordinary user; what it may there is nothing")
    script = "grep CapBnd /proc/self/status; mount -t tmpfs none /mnt 2>/dev/null || echo no mount"
    lines = await output_of(harness, script, user={"uid": uid, "gid": uid, "groups": []})
    assert lines[0].split()[1].lstrip("0") == "a80425fb", "the set container runtimes give by default"
    assert lines[1] == "no mount"


async def test_no_new_privileges_and_a_read_only_root_are_enforced(harness: support.ShimHarness) -> None:
    script = (
        "grep NoNewPrivs /proc/self/status; touch /x 2>/dev/null || echo refused; touch /dev/shm/x 2>/dev/null; true"
    )
    lines = await output_of(harness, script, no_new_privileges=True, read_only_root=True)
    assert lines == ["NoNewPrivs:\t1", "refused"]


async def test_another_pods_processes_and_files_are_invisible(harness: support.ShimHarness) -> None:
    other = await harness.pod("other")
    harness.create(other, "main", ["sh", "-c", "echo private > /tmp/private; exec sleep 4242"])
    await other.start("main", 0)
    lines = await output_of(harness, f"ps ax | grep -c '[4]242'; {TMP}; ls {other.pod} 2>/dev/null; true")
    assert lines == ["0"]


# From the first moment on: look for the machine's root, try to uncover it, also with powers of one's own making.
SEARCH = """
ls -A /dev | grep -vxE 'fd|full|mqueue|null|ptmx|pts|random|shm|stderr|stdin|stdout|tty|urandom|zero'
for way in /dev/pts/machine /dev/pts/.. /.. /proc/1/root /proc/1/cwd; do
    cat $way/%(mark)s 2>/dev/null
done
umount -l /dev/pts 2>/dev/null && echo unmounted
unshare --user --map-root-user --mount sh -c 'umount -l /dev/pts && cat /dev/pts/machine/%(mark)s' 2>/dev/null
for try in $(seq 600); do grep -qF /dev/pts/machine /proc/self/mountinfo || break; sleep 0.05; done
grep -F /dev/pts/machine /proc/self/mountinfo
true
"""


async def test_the_machines_root_is_unreachable_and_soon_unmounted(
    harness: support.ShimHarness, tmp_path: Path
) -> None:
    (tmp_path / "mark").write_text("the machine's own\n")
    for number in range(3):  # it is a race that must never be won
        pod = await harness.pod(f"p{number}")
        script = SEARCH % {"mark": tmp_path / "mark"}
        assert (await harness.run(pod, "main", ["sh", "-c", script]))["exitCode"] == 0
        assert harness.output(pod, "main") == []


async def test_a_container_that_may_unmount_is_started_without_the_machines_root(harness: support.ShimHarness) -> None:
    assert await output_of(
        harness,
        "umount -l /dev/pts; ls -A /dev/pts/machine; grep -c pts/machine /proc/self/mountinfo || true",
        privileged=True,
    ) == ["0"]


async def test_a_link_in_a_volume_stays_inside_the_container(harness: support.ShimHarness, tmp_path: Path) -> None:
    outside, volume = tmp_path / "outside", tmp_path / "volume"
    outside.mkdir()
    volume.mkdir()
    (outside / "secret").write_text("secret")
    os.symlink(outside, volume / "way-out")
    lines = await output_of(harness, "cat /v/way-out/secret 2>/dev/null || echo nothing", mounts=[Mount(volume, "/v")])
    assert lines == ["nothing"]


@pytest.mark.parametrize(
    ("path", "goal"),
    [
        ("/plain/path", "plain/path"),
        ("/../../up", "up"),
        ("/absolute/x", "etc/x"),
        ("/relative/x", "etc/x"),
        ("/climbing/x", "x"),
    ],
)
def test_targets_are_resolved_inside_the_root(tmp_path: Path, path: str, goal: str) -> None:
    (tmp_path / "etc").mkdir()
    os.symlink("/etc", tmp_path / "absolute")
    os.symlink("etc", tmp_path / "relative")
    os.symlink("../../../..", tmp_path / "climbing")
    root = os.open(tmp_path, os.O_PATH)
    target = beneath.make_directories(root, path, in_root=True)
    assert Path(f"/proc/self/fd/{target}").readlink() == tmp_path / goal
    os.close(target)
    os.close(root)


def test_a_cycle_of_links_is_refused(tmp_path: Path) -> None:
    os.symlink("b", tmp_path / "a")
    os.symlink("a", tmp_path / "b")
    root = os.open(tmp_path, os.O_PATH)
    with pytest.raises(OSError, match="symbolic links"):
        beneath.open_path(root, "/a/x", in_root=True)
    os.close(root)
