"""Images built from hostile contexts: what is copied stays in the image, and what is written is in the image."""

from __future__ import annotations

import os
import stat
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.node.conftest import running_node

from torchyard.node.images import python
from torchyard.node.images.build import ImageBuilder
from torchyard.node.images.dockerfile import DockerfileError
from torchyard.node.images.load import load
from torchyard.node.images.save import save
from torchyard.node.images.store import ImageStore
from torchyard.node.runtime.rootfs_steps import CONFIGURATION


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images", python.describe(sys.executable))


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "context").mkdir()
    return tmp_path / "context"


async def build(store: ImageStore, context: Path, *lines: str, name: str = "local/built:1") -> Path:
    """Returns the new layer."""
    dockerfile = context.parent / "Dockerfile"
    dockerfile.write_text("\n".join(lines))
    await ImageBuilder(store, context, arguments={}, print_line=lambda _: None).build(dockerfile, name)
    return store.resolve(name).root.layers[-1]


async def in_a_pod(state: Path, context: Path, script: str, *lines: str) -> str:
    """The output of a pod whose image was built on the plane's node."""
    support.need_sandbox()
    async with running_node(state) as node:
        agent = node.plane.agent
        assert agent
        await build(agent.context.images, context, *lines)
        container = {"image": "local/built:1", "imagePullPolicy": "Never"}
        await node.script("p", script, container=container)
        await node.until("p", lambda pod: (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"))
        return await node.log("p")


async def test_links_of_a_copied_tree_are_followed_in_the_container_only(tmp_path: Path, context: Path) -> None:
    secret, state = tmp_path / "secret", tmp_path / "state"
    secret.write_text("the machine's secret\n")
    secret.chmod(0o600)
    for name, goal in {"leak": state / "pki", "file": secret, "deep/leak": state / "pki", "deep/file": secret}.items():
        (context / name).parent.mkdir(exist_ok=True)
        (context / name).symlink_to(goal)
    show = "cat /leak/* /file /etc/leak/* /etc/file /x/leak/* 2>/dev/null"
    script = f"{show}; (echo mine > /file) 2>/dev/null; readlink /file; true"
    output = await in_a_pod(
        state, context, script, "FROM busybox", "COPY . /", "COPY deep /etc/", "COPY deep/ /x/", "COPY deep /usr/"
    )
    assert output == f"{secret}\n"
    assert secret.read_text() == "the machine's secret\n"


async def test_a_directory_name_is_not_a_list_of_mount_options(tmp_path: Path, context: Path) -> None:
    (tmp_path / "secret").write_text("the machine's secret")
    for name in ("x:..", "y:.", "z,lowerdir=.", "back\\slash"):
        (context / name).mkdir()
        (context / name / "own").write_text(f"{name}\n")
    show = "ls -d /x:../* /y:./* /z*/*; cat /back*/own"
    script = f"{show}; cat /x:..{tmp_path}/secret /y:.{tmp_path}/secret 2>/dev/null; true"
    output = await in_a_pod(tmp_path / "state", context, script, "FROM busybox", "COPY . /")
    assert output == "/x:../own\n/y:./own\n/z,lowerdir=./own\nback\\slash\n"


@pytest.mark.parametrize(
    "path", ["ssl/private", "pki/tls/private", "pki/entitlement", "shadow", "gshadow", "ssh", "sudoers"]
)
def test_keys_and_passwords_of_the_machine_are_not_in_mapped_images(path: str) -> None:
    """Neither in a container nor in an archive that includes the machine's programs."""
    assert not [name for name in CONFIGURATION if Path(path).is_relative_to(name) or Path(name).is_relative_to(path)]


async def test_a_pod_does_not_change_the_image_of_the_next_one(tmp_path: Path, context: Path) -> None:
    support.need_sandbox()
    for name in ("top", "app.conf"):
        (context / name).write_text("original\n")
    async with running_node(tmp_path / "state") as node:
        agent = node.plane.agent
        assert agent
        await build(agent.context.images, context, "FROM busybox", "COPY top /", "COPY app.conf /etc/")
        for name in ("first", "second"):
            script = "cat /top /etc/app.conf; echo changed > /top; echo changed > /etc/app.conf; cat /top /etc/app.conf"
            await node.script(name, script, container={"image": "local/built:1"})
            await node.phase(name, "Succeeded")
            assert await node.log(name) == "original\n" * 2 + "changed\n" * 2


async def test_what_run_writes_is_in_the_image_wherever_it_is(tmp_path: Path, context: Path) -> None:
    lines = (
        "FROM busybox",
        "RUN echo etc > /etc/x && mkdir /etc/deep && echo deep > /etc/deep/y",
        "RUN echo user:x:77:77:::/bin/sh >> /etc/passwd",
        "RUN echo tmp > /tmp/x; echo run > /run/x; echo srv > /srv-new; touch /root/empty; mkdir -m 750 /empty-dir",
        "RUN echo ssl > /etc/ssl/added; ln -s /dev/null /quiet; mkfifo /pipe",
        "RUN rm /etc/x && echo again > /etc/x && rm -rf /etc/deep && mkdir /etc/deep",
        "RUN chmod 700 /srv-new; rm -f /etc/debian_version; truncate -s 20M /sparse",
    )
    script = """
    cat /etc/x /tmp/x /run/x /srv-new /etc/ssl/added
    ls /root /etc/deep; readlink /quiet; stat -c '%a %F' /empty-dir /pipe /srv-new; stat -c %s /sparse
    grep -c ^user /etc/passwd; test -e /etc/debian_version || echo removed; ls /usr/bin | wc -l; ls -d /etc/ssl/certs
    """
    output = (await in_a_pod(tmp_path / "state", context, script, *lines)).splitlines()
    assert output[:5] == ["again", "tmp", "run", "srv", "ssl"]
    assert output[5:13] == [
        "/etc/deep:", "", "/root:", "empty", "/dev/null", "750 directory", "644 fifo", "700 regular file",
    ]  # fmt: skip
    assert output[13:16] == ["20971520", "1", "removed"]
    assert int(output[16]) > 20, "the machine's programs"


@pytest.mark.skipif(os.geteuid() != 0, reason="the machine's directories belong to root, whom a user's sandbox lacks")
async def test_what_run_writes_beside_the_machines_programs_is_in_the_image(tmp_path: Path, context: Path) -> None:
    lines = (
        "FROM busybox",
        "RUN echo bin > /bin/added; echo usr > /usr/share/added; chmod 700 /usr/share/added; mkdir /opt/own",
        "RUN rm /usr/bin/env && echo opt > /opt/own/file",
    )
    script = "cat /bin/added /usr/bin/added /usr/share/added /opt/own/file; test -e /usr/bin/env || echo removed"
    output = await in_a_pod(tmp_path / "state", context, script, *lines)
    assert output == "bin\nbin\nusr\nopt\nremoved\n"
    assert Path("/usr/bin/env").exists()


async def test_a_network_file_of_the_machine_is_not_changed_by_run(store: ImageStore, context: Path) -> None:
    support.need_sandbox()
    before = Path("/etc/hosts").read_bytes()
    with pytest.raises(DockerfileError, match="/etc/hosts was changed, which an image cannot contain"):
        await build(store, context, "FROM busybox", "RUN echo '# planted by a test' >> /etc/hosts")
    assert Path("/etc/hosts").read_bytes() == before


async def test_files_copied_to_a_directory_that_is_a_link_on_the_machine_are_in_the_container(
    tmp_path: Path, context: Path
) -> None:
    program = context / "own-program"
    program.write_text("#!/bin/sh\necho runs\n")
    program.chmod(0o755)
    output = await in_a_pod(
        tmp_path / "state", context, "own-program; ls /bin/sh /usr/bin/env", "FROM busybox", "COPY own-program /bin/"
    )
    assert output == "runs\n/bin/sh\n/usr/bin/env\n"


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
async def test_files_that_are_not_data_are_refused_and_not_read(store: ImageStore, context: Path, kind: str) -> None:
    (context / "deep").mkdir()
    path = context / "deep" / "special"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK)
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero never ends
        except PermissionError:
            pytest.skip("an ordinary user cannot create devices")
    for line in ("COPY . /x/", "COPY deep/special /x/", "ADD deep/special /x"):
        with pytest.raises(DockerfileError, match="deep/special is a"):
            await build(store, context, "FROM busybox", line)


async def test_modes_holes_and_names_survive_copy_save_and_load(store: ImageStore, context: Path) -> None:
    (context / "setuid").write_text("s")
    (context / "setuid").chmod(0o4755)
    with (context / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.write(b"start")
    (context / "link").symlink_to("/etc/shadow")
    os.link(context / "setuid", context / "hard")
    for name in ("new\nline", "sp ace", "quote'\"", "-dash", os.fsdecode(b"not-utf8-\xff"), "x" * 255, ".wh", "ümlaut"):
        (context / name).write_text(name if name.isascii() else "text")
    layer = await build(store, context, "FROM scratch", "COPY . /")
    assert (layer / "setuid").stat().st_mode & 0o7777 == 0o4755
    assert (layer / "sparse").stat().st_size == 1 << 40
    assert (layer / "sparse").stat().st_blocks < 1000
    assert (layer / "link").readlink() == Path("/etc/shadow")
    (layer / "sparse").unlink()  # an archive has no holes
    listing = contents(layer)
    assert len(listing) >= 11
    archive = save(store, "local/built:1", context.parent / "saved.tar")
    load(store, archive, name="local/loaded:1")
    assert contents(store.resolve("local/loaded:1").root.layers[0]) == listing


def contents(tree: Path) -> dict[str, Any]:
    listing: dict[str, Any] = {}
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        content: Any = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        mode = 0 if path.is_symlink() else status.st_mode
        listing[str(path.relative_to(tree))] = (mode, status.st_uid, status.st_gid, content)
    return listing


@pytest.mark.parametrize("name", ["usr", "etc", "proc", "dev"])
async def test_a_link_in_place_of_a_system_directory_is_refused(store: ImageStore, context: Path, name: str) -> None:
    (context / name).symlink_to("/tmp")
    with pytest.raises(DockerfileError, match=f"/{name} of the image is a link: it cannot replace that directory"):
        await build(store, context, "FROM busybox", "COPY . /")


async def test_a_link_that_was_copied_does_not_lead_the_next_copy_out(store: ImageStore, context: Path) -> None:
    outside = context.parent / "outside"
    outside.mkdir()
    (context / "tree").mkdir()
    for name, goal in {"absolute": str(outside), "climbing": f"../../../../../../../..{outside}"}.items():
        (context / "tree" / name).symlink_to(goal)
    (context / "file").write_text("text")
    with tarfile.open(context / "packed.tar", "w") as packed:
        packed.add(context / "file", "file")
    layer = await build(
        store, context, "FROM scratch", "COPY tree /", "COPY file /absolute/a", "COPY file /climbing/b",
        "ADD packed.tar /absolute/", "WORKDIR /absolute/deep", "COPY tree /absolute/tree/",
    )  # fmt: skip
    assert list(outside.iterdir()) == []
    assert sorted(os.listdir(f"{layer}{outside}")) == ["a", "b", "deep", "file", "tree"]


async def test_a_dockerignore_pattern_applies_to_names_in_the_context(store: ImageStore, context: Path) -> None:
    """A link to an ignored file does not bring it back by another name when its directory is copied."""
    (context / "secrets").mkdir()
    (context / "secrets" / "key").write_text("key")
    (context / "alias").symlink_to("secrets")
    (context / ".dockerignore").write_text("secrets\n")
    layer = await build(store, context, "FROM scratch", "COPY . /x/")
    assert (layer / "x" / "alias").is_symlink()
    assert not (layer / "x" / "secrets").exists()
    for source in ("secrets/key", "alias/key", "alias"):
        with pytest.raises(DockerfileError, match="not found in the build context"):
            await build(store, context, "FROM scratch", f"COPY {source} /x/")
