"""Real images: what is built here runs in containerd and podman, what they make runs here, and podman as a rung."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node import support
from tests.node.conftest import RunningNode, running_node
from tests.support.process import Process

from torchyard.api.errors import YardError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.node.images import python, save
from torchyard.node.images.build import ImageBuilder
from torchyard.node.images.load import load
from torchyard.node.images.store import ImageStore
from torchyard.node.streams import NodeStreams

NAME = "local/real:1"
DOCKERFILE = (
    'FROM scratch\nCOPY . /\nENV WHO=world\nWORKDIR /app\nCMD ["/bin/sh", "-c", "read x < said; echo $x $WHO"]\n'
)


def lay_out(context: Path) -> None:
    """A root of its own: a shell with its libraries, and a file to read."""
    programs = ["/bin/sh", "/bin/cat"]
    linked = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout.split()
    for path in {*programs, *(word for word in linked if word.startswith("/") and not word.endswith(":"))}:
        target = context / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(path).resolve(), target)
    (context / "app").mkdir()
    (context / "app" / "said").write_text("hello\n")
    for name in ("dev", "proc", "sys", "tmp", "etc"):
        (context / name).mkdir(exist_ok=True)
        (context / name / ".keep").touch()
    (context / "Dockerfile").write_text(DOCKERFILE)


@pytest.fixture
async def saved(tmp_path: Path) -> Path:
    """An archive of an image that needs nothing of the machine."""
    context = tmp_path / "context"
    context.mkdir()
    lay_out(context)
    store = ImageStore(tmp_path / "images", python.describe(sys.executable))
    await ImageBuilder(store, context, arguments={}, print_line=lambda _: None).build(context / "Dockerfile", NAME)
    return save.save(store, NAME, tmp_path / "image.tar")


def run(*words: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(environment or {})}
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


async def test_a_saved_image_can_be_loaded_and_runs_with_its_own_root(node: RunningNode, saved: Path) -> None:
    support.need_sandbox()
    assert node.plane.agent
    assert load(node.plane.agent.context.images, saved, name="mine:2") == ["docker.io/library/mine:2"]
    container = {"name": "main", "image": "mine:2"}
    await node.create("own", {"restartPolicy": "Never", "containers": [container]})
    await node.phase("own", "Succeeded")
    assert await node.log("own") == "hello world\n"
    look = {
        **container,
        "command": ["/bin/sh", "-c", "for one in /*; do echo $one; done; echo x > /app/new && echo wrote"],
    }
    await node.create("look", {"restartPolicy": "Never", "containers": [look]})
    await node.phase("look", "Succeeded")
    seen = (await node.log("look")).split()
    assert "/usr" not in seen or not (saved.parent / "context" / "usr").exists()
    assert {"/app", "/bin"} <= set(seen)
    assert seen[-1] == "wrote"


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[str]:
    """A containerd of the test's own."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("containerd", "ctr", "runc"))):
        pytest.skip("containerd, ctr and runc, and root to run them, are not all here")
    address = str(tmp_path / "c.sock")
    words = ["containerd", "--root", f"{tmp_path}/root", "--state", f"{tmp_path}/run", "--address", address]
    config = tmp_path / "config.toml"
    config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    process = Process([*words, "--config", str(config)], tmp_path / "containerd.log")
    try:
        process.wait_until(
            lambda: subprocess.run(["ctr", "-a", address, "version"], capture_output=True, check=False).returncode == 0,
            "start",
        )
        yield address
    finally:
        process.stop()


async def test_a_saved_image_runs_in_containerd(containerd: str, saved: Path) -> None:
    run("ctr", "-a", containerd, "images", "import", str(saved))
    full = f"docker.io/{NAME}"
    assert full in run("ctr", "-a", containerd, "images", "ls", "-q")
    output = run("ctr", "-a", containerd, "run", "--rm", "--snapshotter", "native", full, f"t{uuid.uuid4().hex[:8]}")
    assert output == "hello world\n"


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A podman that can run something here, with a store of its own."""
    path = shutil.which("podman")
    if path is None:
        pytest.skip("podman is not installed")
    limits = '["nofile=1024:1024", "nproc=1024:1024"]'
    runtime = "runc" if shutil.which("runc") else "crun"
    settings = tmp_path / "containers.conf"
    settings.write_text(
        f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f"[containers]\ndefault_ulimits = {limits}\n"
    )
    storage = tmp_path / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n')
    monkeypatch.setenv("CONTAINERS_CONF", str(settings))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    return path


def needs_to_run(podman: str) -> None:
    tried = subprocess.run([podman, "run", "--rm", "--network=host", NAME], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"podman cannot run containers here: {tried.stderr.strip().splitlines()[-1:]}")
    assert tried.stdout == "hello world\n"


async def test_a_saved_image_runs_in_podman_and_can_be_loaded_again(podman: str, saved: Path, tmp_path: Path) -> None:
    run(podman, "load", "-i", str(saved))
    needs_to_run(podman)
    for kind in ("docker-archive", "oci-archive"):
        back = tmp_path / f"{kind}.tar"
        run(podman, "save", "--format", kind, "-o", str(back), NAME)
        store = ImageStore(tmp_path / f"{kind}-images", python.describe(sys.executable))
        (name,) = load(store, back, name="back:1")
        image = store.resolve(name)
        assert image.config.env["WHO"] == "world"
        assert (image.root.layers[0] / "app" / "said").read_text() == "hello\n"


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive as `docker save` writes it, with one layer of these members."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as out:
        for member, content in members:
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    manifest = b'[{"Config": "c.json", "Layers": ["layer.tar"], "RepoTags": ["bad:1"]}]'
    with tarfile.open(path, "w") as out:
        for name, content in (("manifest.json", manifest), ("c.json", b"{}"), ("layer.tar", layer.getvalue())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return path


def link(name: str, goal: str, *, hard: bool = False) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = (tarfile.LNKTYPE if hard else tarfile.SYMTYPE), goal
    return member, b""


def file(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def test_nothing_in_an_image_leads_out_of_it(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images", python.describe(sys.executable))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    with pytest.raises(YardError, match="must not lead out of it"):
        load(store, packed(tmp_path / "a.tar", file("../../escaped")))
    with pytest.raises(YardError, match="stolen cannot be unpacked: No such file"):
        load(store, packed(tmp_path / "b.tar", link("stolen", str(outside / "secret"), hard=True)))
    load(store, packed(tmp_path / "c.tar", link("way", str(outside)), file("way/planted")))
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    image = store.resolve("bad:1")
    assert (image.root.layers[0] / str(outside).lstrip("/") / "planted").read_text() == "x"


def test_a_missing_or_invalid_archive_is_an_error(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images", python.describe(sys.executable))
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(YardError, match="nowhere does not exist"):
        load(store, tmp_path / "nowhere")
    for name in ("text", "images"):
        with pytest.raises(YardError, match=f"{name} is not an image archive"):
            load(store, tmp_path / name)
    with pytest.raises(YardError, match="nowhere does not exist"):
        save.save(store, "busybox", tmp_path / "nowhere" / "image.tar")


def test_later_layers_remove_files(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images", python.describe(sys.executable))
    archive = packed(
        tmp_path / "a.tar",
        file("d/gone"),
        file("d/kept"),
        file("d/.wh.gone", b""),
        file("e/old"),
        file("e/.wh..wh..opq", b""),
    )
    load(store, archive)
    tree = store.resolve("bad:1").root.layers[0]
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == ["d", "d/kept", "e"]


async def test_an_image_that_only_podman_has_runs_in_podman(podman: str, saved: Path, tmp_path: Path) -> None:
    run(podman, "load", "-i", str(saved))
    needs_to_run(podman)
    async with running_node(tmp_path / "state") as node:  # the machine is looked at with the fixture's settings
        await node.create("once", {"restartPolicy": "Never", "containers": [{"name": "main", "image": NAME}]})
        pod = await node.phase("once", "Succeeded", seconds=60)
        assert await node.log("once") == "hello world\n"
        assert pod["status"]["containerStatuses"][0]["imageID"].startswith("sha256:")
        await node.create("early", {"restartPolicy": "Never", "containers": [{"name": "main", "image": "later:1"}]})
        await node.until("early", lambda pod: "ErrImagePull" in str(pod.get("status")), seconds=60)
        run(podman, "tag", NAME, "later:1")
        await node.phase("early", "Succeeded", seconds=180)  # the engine is asked several times
        assert await node.log("early") == "hello world\n"
        (tmp_path / "shared").mkdir()
        waits = {
            "name": "main",
            "image": NAME,
            "command": ["/bin/sh", "-c", 'trap "exit 5" TERM; echo "$WHO $MINE" > /shared/up; while :; do :; done'],
            "env": [{"name": "MINE", "value": "given"}],
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        }
        volumes = [{"name": "shared", "hostPath": {"path": str(tmp_path / "shared")}}]
        await node.create("stays", {"containers": [waits], "volumes": volumes})
        pod = await node.phase("stays", "Running", seconds=60)
        for _ in range(1500):
            if (tmp_path / "shared" / "up").exists():
                break
            await asyncio.sleep(0.02)
        assert (tmp_path / "shared" / "up").read_text() == "world given\n"
        assert await executed(node, pod, ["/bin/cat", "/app/said"]) == "hello\n"
        await node.client.delete(PODS, "stays", "default", grace=1)
        await node.gone("stays", seconds=60)
    assert run(podman, "ps", "--all", "--quiet") == "", "no container is left"


async def executed(node: RunningNode, pod: Object, command: list[str]) -> str:
    assert node.plane.agent
    streams = NodeStreams(node.plane.agent.context.settings.pods)
    process = await streams.execute(pod, "main", command, stdin=False, stderr=True, tty=False)
    output = b"".join([piece async for piece in process.output("stdout")])
    await process.wait()
    await process.close()
    return output.decode()
