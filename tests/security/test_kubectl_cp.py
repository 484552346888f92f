"""`kubectl cp` with hostile archives in both directions, by kubectl itself and by our `tar` for images without one."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl
from tests.support.yard import Yard

from torchyard.node.shutdown import stop_pods

pytestmark = pytest.mark.clients


def member(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "", **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def packed(*members: tarfile.TarInfo, content: bytes = b"hostile\n") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info in members:
            if info.isreg():
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return out.getvalue()


# What a hostile pod sends to a kubectl that copies from it.
SENT = packed(
    member("../../planted"),
    member("/tmp/planted-absolute"),
    member("data/../../../planted"),
    member("data/link", tarfile.SYMTYPE, "../.."),
    member("data/link/planted"),
    member("data/plain"),
)
PODS = [
    {"name": "without-tar", "env": [{"name": "PATH", "value": "/nowhere"}]},
    {"name": "hostile", "env": [{"name": "PATH", "value": "/hostile:/usr/bin:/bin"}]},
]


def manifest(pod: dict[str, Any]) -> dict[str, Any]:
    files = {
        "archive": base64.b64encode(SENT).decode(),
        "tar": base64.b64encode(b"#!/bin/sh\ncat /hostile/archive\n").decode(),
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pod["name"]}, "binaryData": files}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["/bin/sh", "-c", "/bin/mkdir -p /work/real /outside; exec /bin/sleep infinity"],
        "env": pod["env"],
        "readinessProbe": {"exec": {"command": ["/usr/bin/test", "-d", "/outside"]}, "periodSeconds": 1},
        "volumeMounts": [{"name": "hostile", "mountPath": "/hostile"}],
    }
    spec = {
        "nodeName": "here",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "hostile", "configMap": {"name": pod["name"], "defaultMode": 0o755}}],
    }
    running = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod["name"]}, "spec": spec}
    return {"apiVersion": "v1", "kind": "List", "items": [config_map, running]}


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    support.need_sandbox()
    if not kubectls.versions():
        pytest.skip(kubectls.MISSING)
    directory = tmp_path_factory.mktemp("cp")
    version = max(kubectls.versions(), key=lambda text: [int(part) for part in text.split(".")])
    with Yard(directory, node=True, flags=("--node-name", "here")) as server:
        kubectl = Kubectl(version, kubectls.versions()[version]).using(
            directory / "state" / "kubeconfig", directory / "c"
        )
        assert server
        for pod in PODS:
            kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(manifest(pod)))
        for pod in PODS:
            kubectl("wait", "--for=condition=Ready", f"pod/{pod['name']}", "--timeout=120s")
        yield kubectl
        asyncio.run(stop_pods(directory / "state" / "node"))


def execute(kube: Kubectl, *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    arguments = kube.command("exec", "-i", "without-tar", "--", *command)
    return subprocess.run(arguments, input=stdin, capture_output=True, check=False, timeout=60, env=kube.variables())


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([member("../up")], "must not lead out of the directory"),
        (
            [member("x", tarfile.SYMTYPE, "/outside"), member("x/through")],
            "must not lead through a link of the archive",
        ),
        ([member("y", tarfile.SYMTYPE, ".."), member("y/through")], "must not lead through a link of the archive"),
        ([member("z", tarfile.LNKTYPE, "../../etc/passwd")], "must not lead out of the directory"),
        ([member("zero", tarfile.CHRTYPE, devmajor=1, devminor=5)], "devices and named pipes are not supported"),
    ],
)
def test_an_archive_does_not_lead_out_of_its_directory(
    kube: Kubectl, members: list[tarfile.TarInfo], words: str
) -> None:
    done = execute(kube, "tar", "xmf", "-", "-C", "/work", stdin=packed(*members))
    assert words in done.stderr.decode()
    assert done.returncode == 2, done.stderr
    assert execute(kube, "/bin/ls", "/outside").stdout == b""
    assert execute(kube, "/usr/bin/test", "-e", "/up").returncode == 1


def test_what_stands_in_the_way_is_replaced_and_not_followed(kube: Kubectl) -> None:
    execute(
        kube, "/bin/sh", "-c", "echo precious > /outside/file; ln -s /outside/file /work/file; ln -s /outside /work/d"
    )
    archive = packed(
        member("file"),
        member("/absolute"),
        member("hard", tarfile.LNKTYPE, "file"),
        member("link", tarfile.SYMTYPE, "/outside/file"),
        member("hard-to-link", tarfile.LNKTYPE, "link", mode=0o4777),
    )
    done = execute(kube, "tar", "xmf", "-", "-C", "/work", stdin=archive)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = execute(
        kube, "/bin/sh", "-c", "/bin/cat /outside/file /work/file /work/absolute; /usr/bin/stat -c %a /outside/file"
    )
    assert shown.stdout == b"precious\nhostile\nhostile\n644\n"
    execute(kube, "/bin/rm", "-rf", "/outside/file", "/work/d")


def test_a_pipe_does_not_block_a_copy_and_special_files_are_packed_as_such(kube: Kubectl) -> None:
    execute(
        kube, "/bin/sh", "-c", "/bin/mkdir /work/src; /usr/bin/mkfifo /work/src/pipe; /bin/ln -s /etc /work/src/link"
    )
    done = execute(kube, "tar", "cf", "-", "/work/src")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        kinds = {info.name: info.type for info in archive}
    assert kinds == {
        "work/src": tarfile.DIRTYPE,
        "work/src/pipe": tarfile.FIFOTYPE,
        "work/src/link": tarfile.SYMTYPE,
    }


def test_kubectl_copies_a_tree_with_links_both_ways(kube: Kubectl, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "file").write_text("content")
    (tree / "link").symlink_to("/etc/passwd")
    kube("cp", str(tree), "without-tar:/work/tree")
    assert execute(kube, "/bin/cat", "/work/tree/deep/file").stdout == b"content"
    kube("cp", "without-tar:/work/tree", str(tmp_path / "back"))
    assert (tmp_path / "back" / "deep" / "file").read_text() == "content"


def test_a_hostile_pod_writes_nothing_outside_of_the_target_of_a_copy(kube: Kubectl, tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "target"
    target.parent.mkdir(parents=True)
    kube.run("cp", "hostile:/data", str(target))
    paths = [path for path in tmp_path.rglob("*") if "planted" in path.name and not path.is_relative_to(target)]
    assert paths == []
    assert not os.path.exists("/tmp/planted-absolute")
