"""The three little languages of ElasticDL's flags: volumes, environments, resources. Pure.

Refusals name the flag, the part that is wrong, and what it should look like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from torchyard.api.errors import YardError
from torchyard.api.objects import Object

_VOLUME_KEYS = ("claim_name", "host_path", "type", "mount_path", "sub_path")
_CPU = re.compile(r"\d+m|\d+(\.\d+)?|\.\d+")
_SIZE = re.compile(r"[1-9]\d*([EPTGMK]i?)")
_SIZES = {"memory": "memory", "disk": "ephemeral-storage", "ephemeral-storage": "ephemeral-storage"}
_DEVICE = re.compile(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9._-]+")


class BadFlag(YardError):
    """A flag's value that cannot be understood."""

    code = "BadFlag"


def _pairs(text: str, flag: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or not key or not value:
            raise BadFlag(f"{flag}: {part!r} is not KEY=VALUE")
        if key in found:
            raise BadFlag(f"{flag}: {key} is given twice in {text!r}")
        found[key] = value
    return found


@dataclass(frozen=True, slots=True)
class VolumeMounts:
    """What `--volume` adds to a pod and to its container."""

    volumes: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)


def volumes(text: str, pod: str, *, flag: str = "--volume") -> VolumeMounts:
    """`claim_name=c,mount_path=/p;host_path=/h,mount_path=/q,type=Directory,sub_path=s`: one volume per source."""
    made = VolumeMounts()
    names: dict[tuple[str, str], str] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        given = _pairs(part, flag)
        unknown = sorted(set(given) - set(_VOLUME_KEYS))
        if unknown:
            raise BadFlag(f"{flag}: {unknown[0]} is not known", hint=f"use {', '.join(_VOLUME_KEYS)}")
        kind = next((key for key in ("claim_name", "host_path") if key in given), "")
        if not kind:
            raise BadFlag(f"{flag}: {part!r} names no source", hint="give claim_name=… or host_path=…")
        if "mount_path" not in given:
            raise BadFlag(f"{flag}: {part!r} has no mount_path", hint="say where it appears: mount_path=/data")
        source = (kind, given[kind])
        if source not in names:
            names[source] = f"{pod}-volume-{len(names)}"
            made.volumes.append({"name": names[source], **_source(kind, given)})
        mount = {"name": names[source], "mountPath": given["mount_path"]}
        made.mounts.append(mount | ({"subPath": given["sub_path"]} if "sub_path" in given else {}))
    return made


def _source(kind: str, given: dict[str, str]) -> Object:
    if kind == "claim_name":
        return {"persistentVolumeClaim": {"claimName": given["claim_name"], "readOnly": False}}
    return {"hostPath": {"path": given["host_path"]} | ({"type": given["type"]} if "type" in given else {})}


def environment(text: str, *, flag: str = "--envs") -> dict[str, str]:
    """`a=1,b=x,y`: the last comma before the next `=` separates pairs, so a value may hold commas."""
    if not text.strip():
        return {}
    pieces = text.split("=")
    if len(pieces) < 2:
        raise BadFlag(f"{flag}: {text!r} is not KEY=VALUE,KEY=VALUE")
    found: dict[str, str] = {}
    key = pieces[0].strip()
    for place, piece in enumerate(pieces[1:], 1):
        value, comma, following = piece.rpartition(",") if place < len(pieces) - 1 else (piece, ",", "")
        if not key or not comma:
            raise BadFlag(f"{flag}: {text!r} is not KEY=VALUE,KEY=VALUE", hint="a value cannot hold an =")
        found[key] = value.strip()
        key = following.strip()
    return found


def resources(text: str, *, flag: str) -> dict[str, str]:
    """`cpu=250m,memory=32Mi,gpu=1`, as the names Kubernetes has for them."""
    found: dict[str, str] = {}
    for key, value in _pairs(text, flag).items():
        name = _resource(key, value, flag)
        if name in found:
            raise BadFlag(f"{flag}: {name} is given twice in {text!r}")
        found[name] = value
    return found


def _resource(key: str, value: str, flag: str) -> str:
    if key == "cpu":
        if not _CPU.fullmatch(value):
            raise BadFlag(f"{flag}: cpu={value} is no amount", hint="give cores or thousandths, as in 0.5 or 500m")
        return key
    if key in _SIZES:
        if not _SIZE.fullmatch(value):
            raise BadFlag(f"{flag}: {key}={value} is no size", hint="give a number and its unit, as in 1024Mi")
        return _SIZES[key]
    name = "nvidia.com/gpu" if key == "gpu" else key
    if not name.startswith("nvidia.com/") and not (_DEVICE.fullmatch(name) and name.endswith("/gpu")):
        raise BadFlag(f"{flag}: {key} is not known", hint="use cpu, memory, disk, ephemeral-storage, gpu or VENDOR/gpu")
    if not value.isdigit() or not int(value):
        raise BadFlag(f"{flag}: {key}={value} is no number of devices", hint="give a whole number")
    return name


def both(request: str, limit: str, *, flag: str) -> Object:
    """A container's resources: what is not limited is limited to what is asked for."""
    asked = resources(request, flag=f"{flag}_request")
    return {"requests": asked, "limits": resources(limit, flag=f"{flag}_limit") if limit else dict(asked)}
