"""Images for a real node, made of what this machine has: a Python with packages, a busybox; nothing is fetched."""

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
wanted, found = list(sys.argv[1:]), {}
while wanted:
    name = re.split(r"[ ;<>=!~\\[(]", wanted.pop())[0]
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        continue
    try:
        one = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    found[key] = [str(one.locate_file(path)) for path in one.files or ()]
    wanted += [each for each in one.requires or () if "extra ==" not in each]
print(json.dumps({
    "files": sorted({path for paths in found.values() for path in paths}),
    "site": sysconfig.get_path("purelib"), "base": sys.base_prefix, "version": sysconfig.get_python_version(),
}))
"""
# Of the standard library: what no program here needs, and most of its bytes.
_LEFT_OUT = shutil.ignore_patterns("site-packages", "test", "idlelib", "lib2to3", "__pycache__", "*.a", "config-*")


def lay_out_python(tree: Path, interpreter: str, packages: Iterable[str]) -> list[str]:
    """A Python with these distributions and all they need, where it was before; answers its command."""
    said = json.loads(subprocess.check_output([interpreter, "-c", _DESCRIBE, *packages], text=True))
    base, site = Path(said["base"]), Path(said["site"])
    library = base / "lib" / f"python{said['version']}"
    shutil.copytree(library, tree / library.relative_to("/"), ignore=_LEFT_OUT, symlinks=True)
    program = base / "bin" / f"python{said['version']}"
    _copy(program, tree)
    for shared in (base / "lib").glob("libpython*.so*"):
        _copy(shared, tree)
    place = tree / "site-packages"
    for path in (Path(os.path.normpath(one)) for one in said["files"]):
        if path.is_file() and path.is_relative_to(site) and path.suffix != ".pyc":
            goal = place / path.relative_to(site)
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, goal)
    _copy_libraries(tree, [program, *tree.rglob("*.so*")])
    _common(tree)
    for name in ("python", "python3"):
        (tree / "usr" / "bin").mkdir(parents=True, exist_ok=True)
        (tree / "usr" / "bin" / name).symlink_to(program)
    return [str(program)]


def lay_out_busybox(tree: Path) -> None:
    """A shell and its usual commands, those of busybox, which needs no libraries; and getent: busybox's nslookup fails
    where a name is found in one search domain and not in another."""
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
    _common(tree)


def _common(tree: Path) -> None:
    for name in ("dev", "proc", "sys", "tmp", "etc", "var"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\nnobody:x:65532:65532:nobody:/:/bin/sh\n")
    (tree / "etc" / "nsswitch.conf").write_text("hosts: files dns\n")


def _copy(path: Path, tree: Path) -> None:
    goal = tree / path.relative_to("/")
    if not goal.exists():
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, goal)


def _copy_libraries(tree: Path, programs: Iterable[Path]) -> None:
    """The shared libraries of the machine that these need, and those by which names are resolved."""
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    found = {Path(one) for one in re.findall(r"(/\S+\.so\S*) \(0x", listed) if not one.startswith(str(tree))}
    for path in found:
        _copy(path, tree)
    for directory in {path.parent for path in found if path.name.startswith("libc.so")}:
        for name in ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"):
            if (directory / name).exists():
                _copy(directory / name, tree)


def pack(tree: Path, names: Mapping[str, list[str]], archive: Path, *, env: Mapping[str, str]) -> None:
    """One layer under several names, each with an entrypoint of its own, as `docker save` would write it."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(tree, arcname=".", filter=_of_root)
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


def _of_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
