"""Builds an image from a Dockerfile with no engine: files are copied, RUN runs in the sandbox, pip has the image's own
environment. The result is a few directory trees and a small description (see `store`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import tarfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchyard.node.images import load
from torchyard.node.images.dockerfile import DockerfileError, Instruction, assignments, parse, split_flags, substitute
from torchyard.node.images.dockerignore import DockerIgnore
from torchyard.node.images.model import Image, ImageConfig, full_name
from torchyard.node.images.run import RunError, run_in_sandbox
from torchyard.node.images.store import ImageStore
from torchyard.node.runtime.rootfs_steps import RootfsSource

ENVIRONMENT = "/opt/env"
# An owner makes no difference here: every file of an image is its builder's.
_COPY_FLAGS = {"chmod", "chown", "link"}
NOTHING = Image("scratch", "", RootfsSource(machine=False), ImageConfig())
Say = Callable[[str], None]


class ImageBuilder:
    """One build. `say` receives a line per step, and what RUN prints."""

    def __init__(self, store: ImageStore, context: Path, *, arguments: dict[str, str], say: Say) -> None:
        self._store, self._context, self._say = store, context.resolve(), say
        self._arguments = arguments
        self._values: dict[str, str] = {}
        self._layer = store.directory / "layers" / f"building-{secrets.token_hex(8)}"
        self._config = ImageConfig()
        self._base: Image | None = None

    async def build(self, dockerfile: Path, name: str) -> str:
        """The new image's id; the name points to it afterwards."""
        full_name(name)  # raises before anything is done for a name that cannot be
        steps = parse(dockerfile.read_text())
        self._layer.mkdir(parents=True)
        try:
            for number, step in enumerate(steps, 1):
                self._say(f"Instruction {number}/{len(steps)} : {step.instruction} {step.text}")
                await self._take(step)
            return self._finish(name)
        except BaseException:
            shutil.rmtree(self._layer, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(self._downloads, ignore_errors=True)

    async def _take(self, step: Instruction) -> None:
        values = {**self._config.env, **self._values}
        # what a shell will read is the shell's to substitute, as docker has it
        text = step.text if step.instruction in ("RUN", "CMD", "ENTRYPOINT") else substitute(step.text, values)
        step = replace(step, text=text)
        if not text:
            raise DockerfileError(f"line {step.line}: {step.instruction} needs an argument")
        try:
            await _STEPS[step.instruction](self, step)
        except ValueError as failed:  # what a shell's quoting would refuse
            raise DockerfileError(f"line {step.line}: {step.instruction} {text}: {failed}") from failed

    async def _from(self, step: Instruction) -> None:
        # the platform is this machine's, whichever is asked for
        _, (name, *_) = split_flags(step.text.split())
        self._base = NOTHING if name == NOTHING.name else self._store.resolve(name)
        self._config = self._base.config

    async def _arg(self, step: Instruction) -> None:
        name, _, default = step.text.partition("=")
        value = self._arguments.get(name, default.strip("\"'"))
        self._values[name] = value

    async def _env(self, step: Instruction) -> None:
        self._config = replace(self._config, env={**self._config.env, **assignments(step)})

    async def _label(self, step: Instruction) -> None:
        self._config = replace(self._config, labels={**self._config.labels, **assignments(step)})

    async def _workdir(self, step: Instruction) -> None:
        directory = os.path.normpath(Path(self._config.directory) / step.text)
        self._config = replace(self._config, directory=directory)
        self._inside(directory).mkdir(parents=True, exist_ok=True)

    async def _user(self, step: Instruction) -> None:
        self._config = replace(self._config, user=step.text)

    async def _entrypoint(self, step: Instruction) -> None:
        # as docker does it: a new entrypoint forgets the base image's arguments
        self._config = replace(self._config, entrypoint=tuple(step.command()), command=())

    async def _cmd(self, step: Instruction) -> None:
        self._config = replace(self._config, command=tuple(step.command()))

    async def _run(self, step: Instruction) -> None:
        assert self._base
        if any("pip" in word for word in step.text.split()):
            self._own_environment()
        command = step.command()
        layers = (*self._base.root.layers, self._layer)
        try:
            env = {**self._config.env, **self._values}
            root = replace(self._base.root, layers=layers)
            await run_in_sandbox(root, self._layer, command, env=env, directory=self._config.directory, say=self._say)
        except RunError as failed:
            raise DockerfileError(f"line {step.line}: RUN {step.text}: {failed.message}", hint=failed.hint) from failed

    def _own_environment(self) -> None:
        """An environment inside the image that sees the mapped one: pip installs beside it, never into it."""
        home = self._inside(ENVIRONMENT)
        if (home / "bin" / "python").is_symlink() or not self._base or not self._base.root.machine:
            return
        python = self._store.python
        short = ".".join(python.version.split(".")[:2])
        packages = home / "lib" / f"python{short}" / "site-packages"
        packages.mkdir(parents=True)
        (home / "bin").mkdir()
        for name in ("python", "python3", f"python{short}"):
            (home / "bin" / name).symlink_to(python.executable.resolve())
        seen = [prefix / "lib" / f"python{short}" / "site-packages" for prefix in python.prefixes]
        (packages / "mapped.pth").write_text("".join(f"{path}\n" for path in seen if path.is_dir()))
        (home / "pyvenv.cfg").write_text(f"home = {python.executable.resolve().parent}\nversion = {python.version}\n")
        # an environment made without pip still has Python's own copy of it
        python_path = f"{ENVIRONMENT}/bin/python"
        have = f"{python_path} -m pip --version >/dev/null 2>&1 || {python_path} -m ensurepip >/dev/null"
        pip = f'#!/bin/sh\n{have}\nexec {python_path} -m pip "$@"\n'
        for name in ("pip", "pip3"):
            (home / "bin" / name).write_text(pip)
            (home / "bin" / name).chmod(0o755)
        path = f"{ENVIRONMENT}/bin:{self._config.env.get('PATH', '')}"
        self._config = replace(self._config, env={**self._config.env, "PATH": path, "VIRTUAL_ENV": ENVIRONMENT})

    async def _copy(self, step: Instruction) -> None:
        flags, words = split_flags(step.words())
        for flag in flags.keys() - _COPY_FLAGS:
            raise DockerfileError(f"line {step.line}: {step.instruction} --{flag} is not built here")
        mode = int(flags["chmod"], 8) if "chmod" in flags else None
        if len(words) < 2:
            raise DockerfileError(f"line {step.line}: {step.instruction} needs a source and a destination")
        *sources, goal = words
        found: list[Path] = []
        for pattern in sources:
            if step.instruction == "ADD" and pattern.startswith(("http://", "https://")):
                found.append(await asyncio.to_thread(self._download, pattern, step))
            else:
                found += self._matching(pattern, step)
        target = str(Path(self._config.directory) / goal)
        into = goal.endswith("/") or goal in (".", "..") or len(found) > 1 or self._inside(target).is_dir()
        for source in found:
            for path in self._put(source, target, into=into, unpack=step.instruction == "ADD"):
                if mode is not None and not path.is_symlink():
                    path.chmod(mode)

    def _matching(self, pattern: str, step: Instruction) -> list[Path]:
        """Files of the build context, never of anything else."""
        clean = os.path.normpath(pattern.lstrip("/") or ".")
        if clean.startswith(".."):
            raise DockerfileError(f"line {step.line}: forbidden path outside the build context: {pattern}")
        ignored = self._ignored()
        found = sorted(self._context.glob(clean)) if any(one in clean for one in "*?[") else [self._context / clean]
        found = [path for path in found if not ignored.covers(path.relative_to(self._context), directory=path.is_dir())]
        for path in found:
            if not path.resolve().is_relative_to(self._context):
                raise DockerfileError(f"line {step.line}: {pattern} is a link out of the build context")
        if not found or not all(path.exists() for path in found):
            raise DockerfileError(f"line {step.line}: {pattern}: not found in the build context {self._context.name}")
        return found

    def _ignored(self) -> DockerIgnore:
        file = self._context / ".dockerignore"
        return DockerIgnore.read(file.read_text() if file.exists() else "")

    @property
    def _downloads(self) -> Path:
        return self._layer.with_name(f"{self._layer.name}.download")

    def _download(self, url: str, step: Instruction) -> Path:
        name = url.rstrip("/").rsplit("/", 1)[-1] or "download"
        goal = self._downloads / name
        goal.parent.mkdir(exist_ok=True)
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, goal.open("wb") as out:  # noqa: S310 - http(s) only, above
                shutil.copyfileobj(answer, out)
        except OSError as failed:
            raise DockerfileError(f"line {step.line}: {url} cannot be fetched: {failed}") from failed
        return goal

    def _put(self, source: Path, target: str, *, into: bool, unpack: bool) -> list[Path]:
        """What was copied, where it lies now."""
        goal = self._inside(target)
        if unpack and source.is_file() and tarfile.is_tarfile(source):
            goal.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as stream:
                load.unpack(stream, goal)
            return []
        if source.is_dir():
            ignored = self._ignored()

            def leave_out(directory: str, names: list[str]) -> list[str]:
                here = Path(directory).relative_to(self._context)
                return [name for name in names if ignored.covers(here / name, directory=Path(directory, name).is_dir())]

            shutil.copytree(source, goal, dirs_exist_ok=True, symlinks=True, ignore=leave_out)
            places = (goal / path.relative_to(source) for path in source.rglob("*"))
            return [place for place in places if place.exists()]
        goal = goal / source.name if into else goal
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, goal)
        return [goal]

    def _inside(self, path: str) -> Path:
        """A place in the new layer. `..` and links cannot lead out of it."""
        parts = [part for part in os.path.normpath("/" + path).split("/") if part]
        here = self._layer
        for part in parts:
            here = here / part
            if here.is_symlink() and not here.resolve().is_relative_to(self._layer):
                raise DockerfileError(f"{path} leads out of the image through the link {here.name}")
        return here

    def _finish(self, name: str) -> str:
        assert self._base
        digest, size = _digest(self._layer)
        layers = self._store.directory / "layers"
        kept = layers / digest
        if kept.exists():
            shutil.rmtree(self._layer)
        else:
            self._layer.rename(kept)
        content: dict[str, Any] = {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "config": self._config.as_dict(),
            "machine": self._base.root.machine,
            "layers": [*(layer.name for layer in self._base.root.layers), digest],
            "base": self._base.name,
            "size": size,
        }
        said = f"{content['config']} {content['layers']} {self._base.id}"
        image_id = f"sha256:{hashlib.sha256(said.encode()).hexdigest()}"
        self._store.add(name, image_id, content)
        self._say(f"Successfully built {image_id[7:19]}")
        self._say(f"Successfully tagged {name}")
        return image_id


_STEPS = {
    "FROM": ImageBuilder._from,
    "ARG": ImageBuilder._arg,
    "ENV": ImageBuilder._env,
    "LABEL": ImageBuilder._label,
    "WORKDIR": ImageBuilder._workdir,
    "USER": ImageBuilder._user,
    "ENTRYPOINT": ImageBuilder._entrypoint,
    "CMD": ImageBuilder._cmd,
    "RUN": ImageBuilder._run,
    "COPY": ImageBuilder._copy,
    "ADD": ImageBuilder._copy,
}


def _digest(tree: Path) -> tuple[str, int]:
    """A hash of names, modes and contents, and the size: equal trees are one layer."""
    hashed, size = hashlib.sha256(), 0
    for path in sorted(tree.rglob("*")):
        status = path.lstat()
        hashed.update(f"{path.relative_to(tree)}\0{status.st_mode:o}\0".encode())
        if path.is_symlink():
            hashed.update(os.fsencode(path.readlink()))
        elif path.is_file():
            hashed.update(path.read_bytes())
            size += status.st_size
    return hashed.hexdigest(), size
