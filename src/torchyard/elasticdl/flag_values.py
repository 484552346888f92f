"""Parses the values of ElasticDL's flags for volumes, environments and resources. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from torchyard.api.errors import YardError
from torchyard.api.objects import Object

_VOLUME_KEYS = ("claim_name", "host_path", "type", "mount_path", "sub_path")
_CPU = re.compile(r"\d+m|\d+(\.\d+)?|\.\d+", re.ASCII)
_SIZE = re.compile(r"[1-9]\d*([EPTGMK]i?)", re.ASCII)
_SIZES = {"memory": "memory", "disk": "ephemeral-storage", "ephemeral-storage": "ephemeral-storage"}
_DEVICE = re.compile(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9._-]+")


class BadFlag(YardError):
    """The value of a flag is not valid."""

    code = "BadFlag"


def _pairs(text: str, flag: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or not key or not value:
            raise BadFlag(f"{flag}: {part!r} is not KEY=VALUE")
        if key in pairs:
            raise BadFlag(f"{flag}: {key} occurs twice in {text!r}")
        pairs[key] = value
    return pairs


@dataclass(frozen=True, slots=True)
class VolumeMounts:
    """What `--volume` adds to a pod and to its container."""

    volumes: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)


def volumes(text: str, pod: str, *, flag: str = "--volume") -> VolumeMounts:
    """Parse `claim_name=c,mount_path=/p;host_path=/h,mount_path=/q,type=Directory,sub_path=s`: a volume per source."""
    result = VolumeMounts()
    volume_names: dict[tuple[str, str], str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        fields = _pairs(part, flag)
        unknown = sorted(set(fields) - set(_VOLUME_KEYS))
        if unknown:
            raise BadFlag(f"{flag}: {unknown[0]} is not a known key", hint=f"use {', '.join(_VOLUME_KEYS)}")
        kind = next((key for key in ("claim_name", "host_path") if key in fields), "")
        if not kind:
            raise BadFlag(f"{flag}: {part!r} has no source", hint="add claim_name=… or host_path=…")
        if "mount_path" not in fields:
            raise BadFlag(f"{flag}: {part!r} has no mount_path", hint="add a mount path, for example mount_path=/data")
        source = (kind, fields[kind])
        if source not in volume_names:
            volume_names[source] = f"{pod}-volume-{len(volume_names)}"
            result.volumes.append({"name": volume_names[source], **_source(kind, fields)})
        mount = {"name": volume_names[source], "mountPath": fields["mount_path"]}
        result.mounts.append(mount | ({"subPath": fields["sub_path"]} if "sub_path" in fields else {}))
    return result


def _source(kind: str, fields: dict[str, str]) -> Object:
    if kind == "claim_name":
        return {"persistentVolumeClaim": {"claimName": fields["claim_name"], "readOnly": False}}
    return {"hostPath": {"path": fields["host_path"]} | ({"type": fields["type"]} if "type" in fields else {})}


def environment(text: str, *, flag: str = "--envs") -> dict[str, str]:
    """Parse `a=1,b=x,y`: the last comma before the next `=` separates pairs, so a value may contain commas."""
    if not text.strip():
        return {}
    pieces = text.split("=")
    if len(pieces) < 2:
        raise BadFlag(f"{flag}: {text!r} is not KEY=VALUE,KEY=VALUE")
    variables: dict[str, str] = {}
    key = pieces[0].strip()
    for index, piece in enumerate(pieces[1:], 1):
        value, comma, following = piece.rpartition(",") if index < len(pieces) - 1 else (piece, ",", "")
        if not key or not comma:
            raise BadFlag(f"{flag}: {text!r} is not KEY=VALUE,KEY=VALUE", hint="a value cannot contain =")
        variables[key] = value.strip()
        key = following.strip()
    return variables


def resources(text: str, *, flag: str) -> dict[str, str]:
    """Parse `cpu=250m,memory=32Mi,gpu=1`, and return the resources by their names in Kubernetes."""
    quantities: dict[str, str] = {}
    for key, value in _pairs(text, flag).items():
        name = _resource(key, value, flag)
        if name in quantities:
            raise BadFlag(f"{flag}: {name} occurs twice in {text!r}")
        quantities[name] = value
    return quantities


def _resource(key: str, value: str, flag: str) -> str:
    if key == "cpu":
        if not _CPU.fullmatch(value):
            raise BadFlag(f"{flag}: cpu={value} is not a valid quantity", hint="use for example 0.5 or 500m")
        return key
    if key in _SIZES:
        if not _SIZE.fullmatch(value):
            raise BadFlag(
                f"{flag}: {key}={value} is not a valid quantity", hint="use a number with a unit, for example 1024Mi"
            )
        return _SIZES[key]
    name = "nvidia.com/gpu" if key == "gpu" else key
    if not name.startswith("nvidia.com/") and not (_DEVICE.fullmatch(name) and name.endswith("/gpu")):
        raise BadFlag(
            f"{flag}: {key} is not a known resource", hint="use cpu, memory, disk, ephemeral-storage, gpu or VENDOR/gpu"
        )
    if not value.isascii() or not value.isdigit() or not int(value):
        raise BadFlag(f"{flag}: {key}={value} is not a number of devices", hint="use a whole number of 1 or more")
    return name


def container_resources(request: str, limit: str, *, flag: str) -> Object:
    """Return the resources of a container; without a limit, the limits are the requests."""
    requests = resources(request, flag=f"{flag}_request")
    return {"requests": requests, "limits": resources(limit, flag=f"{flag}_limit") if limit else dict(requests)}
