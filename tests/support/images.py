"""Images for a real node, built from this machine's files: a Python with packages, a busybox. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

_DESCRIBE = """
import importlib.metadata as metadata, json, re, sys, sysconfig
pending, distributions = list(sys.argv[1:]), {}
while pending:
    name = re.split(r"[ ;<>=!~\\[(]", pending.pop())[0]
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in distributions:
        continue
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    distributions[key] = [str(distribution.locate_file(path)) for path in distribution.files or ()]
    pending += [requirement for requirement in distribution.requires or () if "extra ==" not in requirement]
print(json.dumps({
    "files": sorted({path for paths in distributions.values() for path in paths}),
    "site": sysconfig.get_path("purelib"), "base": sys.base_prefix, "version": sysconfig.get_python_version(),
}))
"""
# Large parts of the standard library that no program here needs.
_EXCLUDED = shutil.ignore_patterns("site-packages", "test", "idlelib", "lib2to3", "__pycache__", "*.a", "config-*")


def install_python(tree: Path, interpreter: str, packages: Iterable[str]) -> list[str]:
    """Copy a Python with these distributions and their dependencies, at the same paths; return its command."""
    description = json.loads(subprocess.check_output([interpreter, "-c", _DESCRIBE, *packages], text=True))
    base, site = Path(description["base"]), Path(description["site"])
    library = base / "lib" / f"python{description['version']}"
    shutil.copytree(library, tree / library.relative_to("/"), ignore=_EXCLUDED, symlinks=True)
    program = base / "bin" / f"python{description['version']}"
    _copy(program, tree)
    for shared in (base / "lib").glob("libpython*.so*"):
        _copy(shared, tree)
    packages_dir = tree / "site-packages"
    for path in (Path(os.path.normpath(file)) for file in description["files"]):
        if path.is_file() and path.is_relative_to(site) and path.suffix != ".pyc":
            target = packages_dir / path.relative_to(site)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    _copy_libraries(tree, [program, *tree.rglob("*.so*")])
    _add_common_files(tree)
    for name in ("python", "python3"):
        (tree / "usr" / "bin").mkdir(parents=True, exist_ok=True)
        (tree / "usr" / "bin" / name).symlink_to(program)
    return [str(program)]


def install_busybox(tree: Path) -> None:
    """Copy busybox with its commands, and getent: busybox's nslookup fails if only some search domains have a name."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    (tree / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(busybox, tree / "bin" / "busybox")
    getent = shutil.which("getent")
    assert getent is not None
    _copy(Path(getent), tree)
    _copy_libraries(tree, [Path(getent)])
    for name in subprocess.check_output([busybox, "--list"], text=True).split():
        if not (tree / "bin" / name).exists():
            (tree / "bin" / name).symlink_to("busybox")
    _add_common_files(tree)


def install_file(tree: Path, path: Path) -> None:
    """Copy a program of this machine with its libraries."""
    _copy(path, tree)
    _copy_libraries(tree, [path])


def _add_common_files(tree: Path) -> None:
    for name in ("dev", "proc", "sys", "tmp", "etc", "var"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\nnobody:x:65532:65532:nobody:/:/bin/sh\n")
    (tree / "etc" / "nsswitch.conf").write_text("hosts: files dns\n")


def _copy(path: Path, tree: Path) -> None:
    target = tree / path.relative_to("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _copy_libraries(tree: Path, programs: Iterable[Path]) -> None:
    """Copy the shared libraries that the programs need, and those that resolve names."""
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    libraries = {
        Path(library) for library in re.findall(r"(/\S+\.so\S*) \(0x", listed) if not library.startswith(str(tree))
    }
    for path in libraries:
        _copy(path, tree)
    for directory in {path.parent for path in libraries if path.name.startswith("libc.so")}:
        for name in ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"):
            if (directory / name).exists():
                _copy(directory / name, tree)


def pack(tree: Path, names: Mapping[str, list[str]], archive: Path, *, env: Mapping[str, str]) -> None:
    """Write one layer under several names, each with its own entrypoint, in the format of `docker save`."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(tree, arcname=".", filter=_owned_by_root)
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", **env}
    entries = []
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, arcname="layer.tar")
        for name, entrypoint in names.items():
            config = {
                "architecture": "amd64",
                "os": "linux",
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "config": {"Env": [f"{key}={value}" for key, value in variables.items()], "Entrypoint": entrypoint},
            }
            text = json.dumps(config).encode()
            file_name = f"{hashlib.sha256(text).hexdigest()}.json"
            _add(tar, file_name, text)
            entries.append({"Config": file_name, "RepoTags": [name], "Layers": ["layer.tar"]})
        _add(tar, "manifest.json", json.dumps(entries).encode())
    layer.unlink()


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
