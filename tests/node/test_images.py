"""Images without an engine: names, the known ones, builds from a Dockerfile, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import psutil
import pytest
from tests.node import support
from tests.support.waiting import eventually

from torchyard.node.images import python, save
from torchyard.node.images.build import ImageBuilder
from torchyard.node.images.dockerfile import DockerfileError, Instruction, parse, substitute
from torchyard.node.images.model import ImageError, full_name
from torchyard.node.images.store import ImageStore


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images", python.describe(sys.executable))


async def build(store: ImageStore, context: Path, dockerfile: str, **arguments: str) -> list[str]:
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(dockerfile)
    output: list[str] = []
    await ImageBuilder(store, context, arguments=arguments, print_line=output.append).build(
        context / "Dockerfile", "local/mine:1"
    )
    return output


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("pytorch/pytorch:2.0", "docker.io/pytorch/pytorch:2.0"),
        ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
    ],
)
def test_image_names_are_completed(name: str, full: str) -> None:
    assert full_name(name) == full


def test_well_known_images_use_the_detected_environment(store: ImageStore) -> None:
    image = store.resolve("pytorch/pytorch:2.0.1-cuda11.7-cudnn8-devel")
    assert image.config.env["PATH"].startswith(str(Path(sys.executable).parent))
    assert image.config.env["PYTHONUNBUFFERED"] == "1"
    assert image.config.directory == "/workspace"
    assert store.resolve("busybox").config.command == ("sh",)


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("kubeflow/pytorch-dist-mnist-test:1.0", "/var/mnist.py"),
        ("alek8106/pytorch-dist-mnist-test:1.0", "/var/mnist.py"),
        ("rollingstones/pytorch-dist-mnist-test:1.0", "/var/mnist.py"),
        (
            "projects.registry.vmware.com/models/kubeflow-docs/model-training-pytorch:1.11.0-cpu-py3.8-v0.1",
            "/opt/pytorch/train.py",
        ),
        (
            "projects.registry.vmware.com/models/kubeflow-docs/model-training-pytorch:1.11.0-gpu-cu11.6-py3.8-v0.1",
            "/opt/pytorch/train.py",
        ),
        ("harbor-repo.vmware.com/kubeflow_learning/lab3-pytorch-training:dlc-0.0.1", "/opt/pytorch/train.py"),
        ("joleedocker/traindb-training-mnist:1.0", "/opt/mnist/src/mnist_training.py"),
    ],
)
def test_an_image_of_the_documents_contains_its_program_and_data(store: ImageStore, name: str, program: str) -> None:
    image = store.resolve(name)
    (tree,) = image.root.layers
    assert image.config.entrypoint[1] == program
    inside = tree / program.strip("/")
    assert inside.is_file()
    assert (inside.parent / "data" / "mnist" / "t10k-labels-idx1-ubyte.xz").is_file()
    assert store.resolve(name) == image, "built once"


def test_an_unknown_image_has_a_hint_to_build_or_map_it(store: ImageStore) -> None:
    with pytest.raises(ImageError, match="yard image build -t example/unknown:1 DIR, or map it") as refused:
        store.resolve("example/unknown:1")
    assert refused.value.code == "ErrImagePull"
    # what an event has before it: Failed to pull image "example/unknown:1"
    assert refused.value.message == (
        'image "docker.io/example/unknown:1" does not exist on this node, and the node has no registry to pull it from'
    )


def test_the_users_map_takes_precedence(store: ImageStore) -> None:
    store.map("docker.io/team/*", "python:3.11")
    assert store.resolve("team/anything:7").config.command == ("python3",)


async def test_a_dockerfile_is_built_into_layers_and_config(store: ImageStore, tmp_path: Path) -> None:
    context = tmp_path / "context"
    (context / "data").mkdir(parents=True)
    (context / "mnist.py").write_text("print('trained')")
    (context / "data" / "a.txt").write_text("a")
    (context / "data" / "secret.key").write_text("s")
    (context / ".dockerignore").write_text("*.key\ndata/*.key\n")
    output = await build(
        store,
        context,
        """
        # a comment
        ARG BASE=pytorch/pytorch:1.11
        FROM pytorch/pytorch:1.11
        ARG WHO=nobody
        ENV GREETING="hello $WHO" \\
            OTHER=1
        WORKDIR /opt/app
        ADD mnist.py ./
        COPY data data/
        COPY data/a.txt /etc/app.conf
        LABEL maintainer=me
        ENTRYPOINT ["python", "/opt/app/mnist.py"]
        CMD ["--epochs", "1"]
        """,
        WHO="you",
    )
    assert output[-1] == "Successfully tagged local/mine:1"
    image = store.resolve("local/mine:1")
    assert image.config.env["GREETING"] == "hello you"
    assert (image.config.entrypoint, image.config.command) == (("python", "/opt/app/mnist.py"), ("--epochs", "1"))
    layer = image.root.layers[-1]
    files = sorted(str(path.relative_to(layer)) for path in layer.rglob("*") if path.is_file())
    assert files == ["etc/app.conf", "opt/app/data/a.txt", "opt/app/mnist.py"]
    assert [item["name"] for item in store.ls()] == ["docker.io/local/mine:1"]
    store.tag("local/mine:1", "local/other:2")
    assert store.remove("local/mine:1") == ["Untagged: docker.io/local/mine:1"]
    assert store.inspect("local/other:2")["config"]["Labels"] == {"maintainer": "me"}
    assert len(store.remove("local/other:2")) == 2
    assert not layer.exists()


async def test_copy_applies_chmod_and_ignores_platform(store: ImageStore, tmp_path: Path) -> None:
    context = tmp_path / "context"
    (context / "tools" / "deep").mkdir(parents=True)
    for name in ("start", "tools/one", "tools/deep/two"):
        (context / name).write_text("#!/bin/sh\n")
    dockerfile = """
    FROM --platform=linux/amd64 busybox AS only
    COPY --chown=1000:1000 --chmod=755 start /bin/start
    COPY --chmod=0711 tools /tools
    """
    await build(store, context, dockerfile)
    layer = store.resolve("local/mine:1").root.layers[-1]
    modes = [(layer / name).stat().st_mode & 0o777 for name in ("bin/start", "tools/one", "tools/deep/two")]
    assert modes == [0o755, 0o711, 0o711]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", ["a.key", "a.txt", "deep/b.key", "deep/b.txt"]),
        ("*.key", ["a.txt", "deep/b.key", "deep/b.txt"]),
        ("**/*.key", ["a.txt", "deep/b.txt"]),
        ("# none\n/deep/", ["a.key", "a.txt"]),
        ("deep\n!deep/b.txt", ["a.key", "a.txt", "deep/b.txt"]),
        ("*\n!a.txt", ["a.txt"]),
        ("deep/?.t[x]t", ["a.key", "a.txt", "deep/b.key"]),
    ],
)
async def test_dockerignore_excludes_files(store: ImageStore, tmp_path: Path, rules: str, expected: list[str]) -> None:
    context = tmp_path / "context"
    (context / "deep").mkdir(parents=True)
    for name in ("a.key", "a.txt", "deep/b.key", "deep/b.txt"):
        (context / name).write_text("x")
    (context / ".dockerignore").write_text(f"{rules}\nDockerfile\n.dockerignore\n")
    await build(store, context, "FROM busybox\nCOPY . /in/\n")
    inside = store.resolve("local/mine:1").root.layers[-1] / "in"
    assert sorted(str(path.relative_to(inside)) for path in inside.rglob("*") if path.is_file()) == expected


async def test_run_writes_into_the_image_and_sees_earlier_layers(store: ImageStore, tmp_path: Path) -> None:
    support.need_sandbox()
    dockerfile = """
    FROM python:3.11
    WORKDIR /work
    RUN echo one > first && mkdir -p /train/out && echo x > /train/out/file
    RUN cat first && chmod 700 first && echo two > second
    RUN rm second && python3 -c "print('python runs')"
    """
    output = await build(store, tmp_path / "context", dockerfile)
    assert {"one", "python runs"} <= set(output)
    layer = store.resolve("local/mine:1").root.layers[-1]
    assert (layer / "work" / "first").read_text() == "one\n"
    assert (layer / "work" / "first").stat().st_mode & 0o777 == 0o700
    assert not (layer / "work" / "second").exists()
    assert (layer / "train" / "out" / "file").exists()


async def test_pip_installs_into_the_images_own_environment(store: ImageStore, tmp_path: Path) -> None:
    support.need_sandbox()
    context = tmp_path / "context"
    package = context / "package"
    (package / "mine").mkdir(parents=True)
    (package / "mine" / "__init__.py").write_text("VALUE = 42\n")
    dockerfile = """
    FROM python:3.11
    COPY package /package
    RUN pip --version && cp -r /package/mine /opt/env/lib/python*/site-packages/
    RUN python3 -c "import mine, sys; print('value', mine.VALUE, sys.prefix)"
    """
    output = await build(store, context, dockerfile)
    assert "value 42 /opt/env" in output
    assert not list(Path(sys.prefix).rglob("site-packages/mine"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("COPY ../secret /", "outside the build context"),
        ("COPY /../../etc/passwd /", "outside the build context|not found"),
        ("COPY way-out/secret /", "link that leads out of the build context"),
        ("COPY missing /", "not found in the build context"),
        ("COPY --from=other a /", "COPY --from is not supported"),
        ("COPY --exclude=x a /", "COPY --exclude is not supported"),
        ("COPY --chmod=u+x way-out /", "line 2: COPY --chmod=u.x way-out /: invalid literal"),
        ("ENV", "line 2: ENV needs an argument"),
        ("ENV A=1 B", "line 2: ENV A=1 B"),
        ('LABEL a="b', "line 2: LABEL .*No closing quotation"),
        ("WORKDIR $NOTHING", "line 2: WORKDIR needs an argument"),
        ("ADD http://127.0.0.1:9/x /", "line 2: http://127.0.0.1:9/x cannot be downloaded"),
        ("ONBUILD RUN x", "ONBUILD is not supported"),
        ("FROM busybox", "multi-stage builds"),
        ("RUN exit 3", "exit code 3"),
        (
            "RUN apt-get install -y nothing-like-this",
            "exit code [0-9]+ .system packages need a container engine: build the image with podman[^(]*$",
        ),
    ],
)
async def test_unsupported_instructions_are_refused_by_name(
    store: ImageStore, tmp_path: Path, line: str, words: str
) -> None:
    if line.startswith("RUN"):
        support.need_sandbox()
    context, outside = tmp_path / "context", tmp_path / "outside"
    for directory in (context, outside):
        directory.mkdir()
    (tmp_path / "secret").write_text("secret")
    (outside / "secret").write_text("secret")
    (context / "way-out").symlink_to(outside)
    with pytest.raises(DockerfileError, match=words):
        await build(store, context, f"FROM busybox\n{line}\n")
    assert not list((store.directory / "layers").glob("building-*"))


async def test_add_unpacks_an_archive_and_follows_no_link_out_of_the_image(store: ImageStore, tmp_path: Path) -> None:
    context, outside = tmp_path / "context", tmp_path / "outside"
    for directory in (context, outside):
        directory.mkdir()
    with tarfile.open(context / "tree.tar.gz", "w:gz") as packed:
        link = tarfile.TarInfo("way-out")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        packed.addfile(link)
        for name in ("way-out/taken", "plain"):
            member = tarfile.TarInfo(name)
            member.size = 4
            packed.addfile(member, io.BytesIO(b"text"))
    await build(store, context, "FROM busybox\nADD tree.tar.gz /data/\n")
    layer = store.resolve("local/mine:1").root.layers[-1]
    assert (layer / "data" / "plain").read_text() == "text"
    assert not list(outside.iterdir())


async def test_an_invalid_name_is_refused_before_the_build(store: ImageStore, tmp_path: Path) -> None:
    output: list[str] = []
    (tmp_path / "Dockerfile").write_text("FROM busybox\n")
    with pytest.raises(ImageError, match="invalid reference format"):
        await ImageBuilder(store, tmp_path, arguments={}, print_line=output.append).build(
            tmp_path / "Dockerfile", "Bad Name"
        )
    assert output == []


def test_continuations_comments_and_both_command_forms_are_parsed() -> None:
    steps = parse('FROM a\nRUN one && \\\n  # between\n  two\nCMD ["x", "y"]\nEXPOSE 80\nENTRYPOINT run it\n')
    assert steps[1] == Instruction(2, "RUN", "one &&  two")
    assert steps[2].command() == ["x", "y"]
    assert steps[3].command() == ["/bin/sh", "-c", "run it"]
    assert substitute("$A ${B} ${C:-c} ${A:+yes} \\$A", {"A": "1", "B": "2"}) == "1 2 c yes $A"


async def test_a_saved_image_is_a_complete_oci_layout(store: ImageStore, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "f").write_text("content")
    await build(store, context, "FROM busybox\nCOPY f /app/f\nCMD cat /app/f\n")
    target = save.save(store, "local/mine:1", tmp_path / "image.tar", with_machine=False)
    with tarfile.open(target) as packed:
        blobs = {}
        for member in packed:
            file = packed.extractfile(member)
            assert file
            blobs[member.name] = file.read()
    index = json.loads(blobs["index.json"])
    manifest = json.loads(blobs[f"blobs/sha256/{index['manifests'][0]['digest'][7:]}"])
    config = json.loads(blobs[f"blobs/sha256/{manifest['config']['digest'][7:]}"])
    assert config["config"]["Cmd"] == ["/bin/sh", "-c", "cat /app/f"]
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == "docker.io/local/mine:1"
    for name, data in blobs.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]


@pytest.mark.parametrize(
    "name", ["registry.k8s.io/pause:3.10", "gcr.io/google_containers/pause", "k8s.gcr.io/pause-arm64:3.1"]
)
def test_the_stand_in_for_pause_ends_on_sigterm(store: ImageStore, name: str) -> None:
    entrypoint = store.resolve(name).config.entrypoint
    process = subprocess.Popen(entrypoint, start_new_session=True)
    try:
        # The handler is set before the first child starts.
        eventually(lambda: bool(psutil.Process(process.pid).children()), "the start of the stand-in")
        process.terminate()
        assert process.wait(30) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)
