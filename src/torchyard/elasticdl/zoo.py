"""`elasticdl zoo`: writes a Dockerfile for a directory of models, and builds its image without a container engine."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from torchyard.elasticdl.flag_values import BadFlag

BASE_IMAGE = "python:3.11"


def add(commands: Any) -> None:
    zoo = commands.add_parser("zoo", help="initialize, build, push the image of a model zoo").add_subparsers(
        required=True
    )
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


def dockerfile(args: argparse.Namespace) -> str:
    for flag in ("base_image", "extra_pypi_index", "local_pkg_dir", "model_zoo", "cluster_spec"):
        if any(character.isspace() and character != " " for character in getattr(args, flag)):
            raise BadFlag(f"--{flag} contains a line break or a tab, which a Dockerfile cannot express")
    if " " in args.base_image:
        raise BadFlag(f"--base_image={args.base_image} is not the name of an image")
    index = f" {shlex.quote(f'--extra-index-url={args.extra_pypi_index}')}"
    lines = [f"FROM {args.base_image}"]
    if args.local_pkg_dir:
        lines += [_copy(args.local_pkg_dir, "/wheels"), f"RUN pip install /wheels/*.whl{index}"]
    lines.append(_copy(args.model_zoo, "/model_zoo"))
    if (Path(args.model_zoo) / "requirements.txt").exists():
        lines.append(f"RUN pip install -r /model_zoo/requirements.txt{index}")
    if args.cluster_spec:
        lines.append(_copy(Path(args.cluster_spec).name, f"/cluster_spec/{Path(args.cluster_spec).name}"))
    return "\n".join(lines) + "\n"


def _copy(source: str, target: str) -> str:
    """Return a COPY instruction; the form for paths with spaces is used only for them."""
    plain = not any(character in source for character in ' "[]$\\')
    return f"COPY {source} {target}" if plain else f"COPY {json.dumps([source, target])}"


def _init(args: argparse.Namespace) -> int:
    """Write the Dockerfile. It does not install the elastic runtime: workers get it from their master."""
    spec = Path(args.cluster_spec) if args.cluster_spec else None
    if spec is not None and not spec.exists():
        raise BadFlag(f"--cluster_spec: {spec} does not exist")
    if not Path(args.model_zoo).is_dir():
        raise BadFlag(f"--model_zoo: {args.model_zoo} is not a directory")
    if spec is not None and spec.resolve().parent != Path.cwd():
        shutil.copy2(spec, Path.cwd())
    Path("Dockerfile").write_text(dockerfile(args))
    print("wrote ./Dockerfile")  # noqa: T201
    return 0


def _build(args: argparse.Namespace) -> int:
    from torchyard.node.images.build import ImageBuilder
    from torchyard.yard.images import image_store
    from torchyard.yard.settings import PlaneSettings, default_state

    dockerfile_path = args.path / "Dockerfile"
    if not dockerfile_path.is_file():
        raise BadFlag(f"{args.path} has no Dockerfile", hint="create one with: elasticdl zoo init")
    builder = ImageBuilder(
        image_store(PlaneSettings(state=default_state().absolute())), args.path, arguments={}, print_line=print
    )
    print(f"built {asyncio.run(builder.build(dockerfile_path, args.image))} as {args.image}")  # noqa: T201
    return 0


def _push(args: argparse.Namespace) -> int:
    raise BadFlag(
        "zoo push is not supported: every pod on this machine can use a built image without a registry",
        hint=f"to use a registry, run `yard image save {args.image} -o image.tar` and push the file with another tool",
    )
