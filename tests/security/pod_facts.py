"""Runs in a pod: prints what the pod sees, one JSON object. Needs nothing but the standard library."""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import Any


def ids() -> Any:
    return [os.getuid(), os.getgid(), sorted(os.getgroups())]


def umask() -> Any:
    mask = os.umask(0)
    os.umask(mask)
    return oct(mask)


def attributes(path: str) -> Any:
    info = os.lstat(path)
    kind = stat.filemode(info.st_mode)[0]
    return f"{kind} {stat.S_IMODE(info.st_mode):o} {info.st_uid} {info.st_gid}"


def stable(path: str) -> Any:
    """The path with one name for the directory that holds the present version of a volume's files."""
    parts = path.split("/")
    return "/".join("..version" if part.startswith("..") and part != "..data" else part for part in parts)


def tree(path: str) -> Any:
    entries = {".": attributes(path)}
    for directory, names, files in os.walk(path):
        for name in names + files:
            inner = os.path.join(directory, name)
            link = os.path.islink(inner)
            text = "-> " + stable(os.readlink(inner)) if link else attributes(inner)
            entries[stable(os.path.relpath(inner, path))] = text
    return entries


def status(name: str) -> Any:
    with open("/proc/self/status") as lines:
        return next(line.split()[1] for line in lines if line.startswith(name + ":"))


def read(path: str) -> Any:
    with open(path) as file:
        return file.read()


def write(path: str) -> Any:
    try:
        with open(path, "w") as file:
            file.write("x")
    except OSError as error:
        return os.strerror(error.errno or 0)
    return "written"


def create(path: str) -> Any:
    result = write(path)
    return attributes(path) if result == "written" else result


def make_directory(path: str) -> Any:
    os.mkdir(path)
    return attributes(path)


def mount(path: str) -> Any:
    lines = [line.split() for line in read("/proc/self/mounts").splitlines()]
    mounts = [options.split(",") for _, target, _, options, *_ in lines if target == path]
    if not mounts:
        return "none"
    options = mounts[-1]
    flags = [flag for flag in ("ro", "rw", "nosuid", "nodev", "noexec") if flag in options]
    return " ".join(flags)


def sysctl(name: str) -> Any:
    return read("/proc/sys/" + name.replace(".", "/")).split()


def hosts(word: str) -> Any:
    return [line.split() for line in read("/etc/hosts").splitlines() if line.startswith(word)]


def namespaces() -> Any:
    """Namespaces whose first process is this one's container."""
    return sorted(name for name in ("ipc", "mnt", "net", "pid", "uts") if os.path.exists("/proc/self/ns/" + name))


FACTS: dict[str, Any] = {
    "ids": ids,
    "umask": umask,
    "cwd": os.getcwd,
    "hostname": lambda: os.uname().nodename,
    "env": os.environ.get,
    "variables": lambda word: sorted(name for name in os.environ if word in name),
    "stat": attributes,
    "tree": tree,
    "status": status,
    "read": read,
    "write": write,
    "create": create,
    "mkdir": make_directory,
    "mount": mount,
    "sysctl": sysctl,
    "hosts": hosts,
    "is-first-process": lambda: os.getpid() == 1,
    "is-terminal": lambda: os.isatty(1),
    "namespaces": namespaces,
}

result: dict[str, Any] = {}
for argument in sys.argv[1:]:
    name, _, parameter = argument.partition(":")
    try:
        result[argument] = FACTS[name](*([parameter] if parameter else []))
    except OSError as error:
        result[argument] = os.strerror(error.errno or 0)
print(json.dumps(result))
