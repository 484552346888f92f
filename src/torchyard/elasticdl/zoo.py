"""`elasticdl zoo`: a Dockerfile for a directory of models, and its image, built without a container engine."""

from __future__ import annotations

import argparse
import asyncio
import shutil
from pathlib import Path
from typing import Any

from torchyard.elasticdl.flag_values import BadFlag

BASE_IMAGE = "python:3.11"


def add(verbs: Any) -> None:
    zoo = verbs.add_parser("zoo", help="initialize, build, push the image of a model zoo").add_subparsers(required=True)
    init = zoo.add_parser("init", help="write a Dockerfile for the model zoo")
    init.add_argument("--base_image", default=BASE_IMAGE)
    init.add_argument("--extra_pypi_index", default="https://pypi.org/simple")
    init.add_argument("--cluster_spec", default="")
    init.add_argument("--local_pkg_dir", default="")
    init.add_argument("--model_zoo", default=".")
    init.set_defaults(call=_init)
    build = zoo.add_parser("build", help="build the image of a model zoo")
    build.add_argument("path", type=Path)
    build.add_argument("--image", required=True)
    build.set_defaults(call=_build)
    push = zoo.add_parser("push", help="not supported")
    push.add_argument("image")
    push.set_defaults(call=_push)


def dockerfile(given: argparse.Namespace) -> str:
    index = f" --extra-index-url={given.extra_pypi_index}"
    lines = [f"FROM {given.base_image}"]
    if given.local_pkg_dir:
        lines += [f"COPY {given.local_pkg_dir} /wheels", f"RUN pip install /wheels/*.whl{index}"]
    lines.append(f"COPY {given.model_zoo} /model_zoo")
    if (Path(given.model_zoo) / "requirements.txt").exists():
        lines.append(f"RUN pip install -r /model_zoo/requirements.txt{index}")
    if given.cluster_spec:
        lines.append(f"COPY {Path(given.cluster_spec).name} /cluster_spec/{Path(given.cluster_spec).name}")
    return "\n".join(lines) + "\n"


def _init(given: argparse.Namespace) -> int:
    """The elastic runtime needs no line of its own: workers get it from their master."""
    spec = Path(given.cluster_spec) if given.cluster_spec else None
    if spec is not None and not spec.exists():
        raise BadFlag(f"--cluster_spec: there is no {spec}")
    if not Path(given.model_zoo).is_dir():
        raise BadFlag(f"--model_zoo: {given.model_zoo} is not a directory")
    if spec is not None and spec.resolve().parent != Path.cwd():
        shutil.copy2(spec, Path.cwd())
    Path("Dockerfile").write_text(dockerfile(given))
    print("wrote ./Dockerfile")  # noqa: T201
    return 0


def _build(given: argparse.Namespace) -> int:
    from torchyard.node.images.build import ImageBuilder
    from torchyard.yard.images import image_store
    from torchyard.yard.settings import PlaneSettings, default_state

    recipe = given.path / "Dockerfile"
    if not recipe.is_file():
        raise BadFlag(f"there is no Dockerfile in {given.path}", hint="write one with: elasticdl zoo init")
    builder = ImageBuilder(
        image_store(PlaneSettings(state=default_state().absolute())), given.path, arguments={}, print_line=print
    )
    print(f"built {asyncio.run(builder.build(recipe, given.image))} as {given.image}")  # noqa: T201
    return 0


def _push(given: argparse.Namespace) -> int:
    raise BadFlag(
        "zoo push is not supported: an image built here is there for every pod of this machine",
        hint=f"for a registry: yard image save {given.image} -o image.tar, then push that with your registry's tool",
    )
