"""Builds an image from a Dockerfile without an engine: files are copied, RUN runs in the sandbox, pip installs into an
environment of the image's own. The result is a few directory trees and a JSON file (see `store`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchyard import files
from torchyard.node.images import tree
from torchyard.node.images.dockerfile import DockerfileError, Instruction, assignments, parse, split_flags, substitute
from torchyard.node.images.dockerignore import DockerIgnore
from torchyard.node.images.model import Image, ImageConfig, full_name
from torchyard.node.images.run import RunError, run_in_sandbox
from torchyard.node.images.store import ImageStore
from torchyard.node.images.tree import TreeError
from torchyard.node.images.unpack import BadArchive, is_archive
from torchyard.node.images.unpack import unpack as unpack_archive
from torchyard.node.runtime.rootfs_steps import SYSTEM, RootfsSource
from torchyard.node.shim import beneath
from torchyard.node.threads import in_thread

ENVIRONMENT = "/opt/env"
# --chown has no effect: every file of an image belongs to its builder.
_COPY_FLAGS = {"chmod", "chown", "link"}
SCRATCH = Image("scratch", "", RootfsSource(machine=False), ImageConfig())
PrintLine = Callable[[str], None]


class ImageBuilder:
    """One build. `print_line` receives a line per instruction, and the output of RUN."""

    def __init__(self, store: ImageStore, context: Path, *, arguments: dict[str, str], print_line: PrintLine) -> None:
        self._store, self._context, self._print_line = store, context.resolve(), print_line
        self._arguments = arguments
        self._values: dict[str, str] = {}
        self._layer = store.directory / "layers" / f"building-{secrets.token_hex(8)}"
        self._config = ImageConfig()
        self._base: Image | None = None

    async def build(self, dockerfile: Path, name: str) -> str:
        """Build the image and tag it; returns its id."""
        full_name(name)  # raises for an invalid name, before anything is built
        instructions = parse(dockerfile.read_text())
        self._layer.mkdir(parents=True)
        self._layer.chmod(0o755)  # the container's root, whatever the umask is
        try:
            for number, instruction in enumerate(instructions, 1):
                self._print_line(f"Step {number}/{len(instructions)} : {instruction.keyword} {instruction.text}")
                await self._execute(instruction)
            return self._finish(name)
        except BaseException:
            files.remove_tree(self._layer)
            raise
        finally:
            files.remove_tree(self._downloads)

    async def _execute(self, instruction: Instruction) -> None:
        values = {**self._config.env, **self._values}
        # the shell substitutes variables of what it runs, as with docker
        text = (
            instruction.text
            if instruction.keyword in ("RUN", "CMD", "ENTRYPOINT")
            else substitute(instruction.text, values)
        )
        instruction = replace(instruction, text=text)
        if not text:
            raise DockerfileError(f"line {instruction.line}: {instruction.keyword} needs an argument")
        try:
            await _INSTRUCTIONS[instruction.keyword](self, instruction)
        except (ValueError, TreeError, BadArchive, OSError) as error:  # invalid shell quoting; what cannot be copied
            raise DockerfileError(f"line {instruction.line}: {instruction.keyword} {text}: {error}") from error

    async def _from(self, instruction: Instruction) -> None:
        # --platform is ignored: the platform is this machine's
        _, (name, *_) = split_flags(instruction.text.split())
        self._base = SCRATCH if name == SCRATCH.name else self._store.resolve(name)
        self._config = self._base.config

    async def _arg(self, instruction: Instruction) -> None:
        name, _, default = instruction.text.partition("=")
        value = self._arguments.get(name, default.strip("\"'"))
        self._values[name] = value

    async def _env(self, instruction: Instruction) -> None:
        self._config = replace(self._config, env={**self._config.env, **assignments(instruction)})

    async def _label(self, instruction: Instruction) -> None:
        self._config = replace(self._config, labels={**self._config.labels, **assignments(instruction)})

    async def _workdir(self, instruction: Instruction) -> None:
        directory = os.path.normpath(Path(self._config.directory) / instruction.text)
        self._config = replace(self._config, directory=directory)
        self._directory(directory)

    async def _user(self, instruction: Instruction) -> None:
        self._config = replace(self._config, user=instruction.text)

    async def _entrypoint(self, instruction: Instruction) -> None:
        # as docker does it: a new entrypoint clears the base image's arguments
        self._config = replace(self._config, entrypoint=tuple(instruction.command()), command=())

    async def _cmd(self, instruction: Instruction) -> None:
        self._config = replace(self._config, command=tuple(instruction.command()))

    async def _run(self, instruction: Instruction) -> None:
        assert self._base
        if any("pip" in word for word in instruction.text.split()):
            self._create_environment()
        command = instruction.command()
        layers = (*self._base.root.layers, self._layer)
        try:
            env = {**self._config.env, **self._values}
            root = replace(self._base.root, layers=layers)
            await run_in_sandbox(
                root, self._layer, command, env=env, directory=self._config.directory, print_line=self._print_line
            )
        except RunError as error:
            raise DockerfileError(
                f"line {instruction.line}: RUN {instruction.text}: {error.message}", hint=error.hint
            ) from error

    def _create_environment(self) -> None:
        """A Python environment in the image that can import from the mapped one; pip installs into it."""
        environment = self._directory(ENVIRONMENT)
        if (environment / "bin" / "python").is_symlink() or not self._base or not self._base.root.machine:
            return
        python = self._store.python
        short = ".".join(python.version.split(".")[:2])
        packages = environment / "lib" / f"python{short}" / "site-packages"
        packages.mkdir(parents=True)
        (environment / "bin").mkdir()
        for name in ("python", "python3", f"python{short}"):
            (environment / "bin" / name).symlink_to(python.executable.resolve())
        site_packages = [prefix / "lib" / f"python{short}" / "site-packages" for prefix in python.prefixes]
        (packages / "mapped.pth").write_text("".join(f"{path}\n" for path in site_packages if path.is_dir()))
        (environment / "pyvenv.cfg").write_text(
            f"home = {python.executable.resolve().parent}\nversion = {python.version}\n"
        )
        # an environment without pip still has Python's bundled copy of it
        python_path = f"{ENVIRONMENT}/bin/python"
        ensure_pip = f"{python_path} -m pip --version >/dev/null 2>&1 || {python_path} -m ensurepip >/dev/null"
        pip = f'#!/bin/sh\n{ensure_pip}\nexec {python_path} -m pip "$@"\n'
        for name in ("pip", "pip3"):
            (environment / "bin" / name).write_text(pip)
            (environment / "bin" / name).chmod(0o755)
        path = f"{ENVIRONMENT}/bin:{self._config.env.get('PATH', '')}"
        self._config = replace(self._config, env={**self._config.env, "PATH": path, "VIRTUAL_ENV": ENVIRONMENT})

    async def _copy(self, instruction: Instruction) -> None:
        flags, words = split_flags(instruction.words())
        for flag in flags.keys() - _COPY_FLAGS:
            raise DockerfileError(f"line {instruction.line}: {instruction.keyword} --{flag} is not supported")
        mode = int(flags["chmod"], 8) if "chmod" in flags else None
        if len(words) < 2:
            raise DockerfileError(f"line {instruction.line}: {instruction.keyword} needs a source and a destination")
        *patterns, destination = words
        sources: list[Path] = []
        for pattern in patterns:
            if instruction.keyword == "ADD" and pattern.startswith(("http://", "https://")):
                sources.append(await in_thread(self._download, pattern, instruction))
            else:
                sources += self._matching(pattern, instruction)
        target = str(Path(self._config.directory) / destination)
        is_dir = (
            destination.endswith("/") or destination in (".", "..") or len(sources) > 1 or self._is_directory(target)
        )
        for source in sources:
            self._copy_source(source, target, into=is_dir, unpack=instruction.keyword == "ADD", mode=mode)

    def _matching(self, pattern: str, instruction: Instruction) -> list[Path]:
        """The files of the build context that a pattern matches, and never others."""
        clean = os.path.normpath(pattern.lstrip("/") or ".")
        if clean.startswith(".."):
            raise DockerfileError(f"line {instruction.line}: forbidden path outside the build context: {pattern}")
        ignore = self._dockerignore()
        is_glob = any(character in clean for character in "*?[")
        paths = sorted(self._context.glob(clean)) if is_glob else [self._context / clean]
        paths = [
            path for path in paths if not ignore.excludes(path.relative_to(self._context), directory=path.is_dir())
        ]
        for path in paths:
            if not path.resolve().is_relative_to(self._context):
                raise DockerfileError(
                    f"line {instruction.line}: {pattern} is a link that leads out of the build context"
                )
        # what is ignored is not in the context, by whichever name
        hidden = (ignore.excludes(path.resolve().relative_to(self._context), directory=path.is_dir()) for path in paths)
        if not paths or any(hidden) or not all(path.exists() for path in paths):
            raise DockerfileError(
                f"line {instruction.line}: {pattern}: not found in the build context {self._context.name}"
            )
        return paths

    def _dockerignore(self) -> DockerIgnore:
        file = self._context / ".dockerignore"
        return DockerIgnore.read(file.read_text() if file.exists() else "")

    @property
    def _downloads(self) -> Path:
        return self._layer.with_name(f"{self._layer.name}.download")

    def _download(self, url: str, instruction: Instruction) -> Path:
        name = url.rstrip("/").rsplit("/", 1)[-1]
        name = "download" if name in ("", ".", "..") else name
        file = self._downloads / name
        file.parent.mkdir(exist_ok=True)
        try:
            with urllib.request.urlopen(url, timeout=60) as response, file.open("wb") as out:  # noqa: S310 - http(s) only, above
                shutil.copyfileobj(response, out)
        except OSError as error:
            raise DockerfileError(f"line {instruction.line}: {url} cannot be downloaded: {error}") from error
        return file

    def _copy_source(self, source: Path, target: str, *, into: bool, unpack: bool, mode: int | None) -> None:
        """Copy one file or directory of the context. Links in a directory are copied as links."""
        if unpack and source.is_file() and is_archive(source):
            with source.open("rb") as stream:
                unpack_archive(stream, self._directory(target))
            return
        real = source.resolve()
        shown = os.path.relpath(source, self._context)
        if real.is_dir():
            ignore = self._dockerignore()

            def excluded(path: str, is_directory: bool) -> bool:
                return ignore.excludes((real / path).relative_to(self._context), directory=is_directory)

            with tree.opened(real) as directory, tree.opened(self._directory(target)) as copy:
                tree.copy(directory, copy, excluded=excluded, mode=mode)
            return
        parent, name = (target, source.name) if into else os.path.split(os.path.normpath(target))
        if self._is_directory(f"{parent}/{name}"):
            raise TreeError(f"{shown} cannot replace the directory {target}")
        with tree.opened(real.parent) as directory, tree.opened(self._directory(parent)) as copy:
            tree.copy_file(real.name, directory, name, copy, path=shown, mode=mode)

    def _directory(self, path: str) -> Path:
        """A directory of the new layer, created if missing; links are followed as a container would follow them."""
        with tree.opened(self._layer) as layer:
            descriptor = beneath.make_directories(layer, path, in_root=True)
            try:
                directory = Path(f"/proc/self/fd/{descriptor}").readlink()
            finally:
                os.close(descriptor)
        if not directory.is_dir():
            raise TreeError(f"{path} is a file of the image, not a directory")
        return directory

    def _is_directory(self, path: str) -> bool:
        with tree.opened(self._layer) as layer:
            try:
                descriptor = beneath.open_path(layer, path, in_root=True)
            except OSError:
                return False
            try:
                return stat.S_ISDIR(os.fstat(descriptor).st_mode)
            finally:
                os.close(descriptor)

    def _check_top_level(self) -> None:
        """Refuse what would be lost: a file or link in place of a directory that every container has."""
        assert self._base
        required = {"proc", "sys", "dev", "etc"} | (set(SYSTEM) if self._base.root.machine else set())
        for name in sorted(required & {path.name for path in self._layer.iterdir()}):
            path = self._layer / name
            if path.is_symlink() or not path.is_dir():
                kind = "link" if path.is_symlink() else "file"
                raise DockerfileError(f"/{name} of the image is a {kind}: it cannot replace that directory")

    def _finish(self, name: str) -> str:
        assert self._base
        self._check_top_level()
        with tree.opened(self._layer) as opened:
            digest, size = tree.digest(opened)
        layers = self._store.directory / "layers"
        layer = layers / digest
        if layer.exists():
            files.remove_tree(self._layer)
        else:
            self._layer.rename(layer)
        content: dict[str, Any] = {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "config": self._config.as_dict(),
            "machine": self._base.root.machine,
            "layers": [*(layer.name for layer in self._base.root.layers), digest],
            "prefixes": [str(prefix) for prefix in self._base.root.prefixes],
            "base": self._base.name,
            "size": size,
        }
        identity = f"{content['config']} {content['layers']} {self._base.id}"
        image_id = f"sha256:{hashlib.sha256(identity.encode()).hexdigest()}"
        self._store.add(name, image_id, content)
        self._print_line(f"Successfully built {image_id[7:19]}")
        self._print_line(f"Successfully tagged {name}")
        return image_id


_INSTRUCTIONS = {
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
