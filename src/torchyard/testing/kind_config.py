"""A configuration file of kind: what of it a plane has, and a refusal by name of everything else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError

_API_VERSION = "kind.x-k8s.io/v1alpha4"


@dataclass(frozen=True, slots=True)
class KindConfig:
    name: str = ""
    host: str = "127.0.0.1"
    port: int = 0


class UnsupportedConfig(YardError):
    code = "UnsupportedConfig"


def read(path: Path, text: str) -> KindConfig:
    """Read a configuration; UnsupportedConfig names the first field that a plane cannot honour."""
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise YardError(f"{path} is not valid YAML: {error}", code="BadManifest") from error
    if not isinstance(content, dict) or content.get("kind") != "Cluster" or content.get("apiVersion") != _API_VERSION:
        raise YardError(
            f"{path} is no configuration of kind", hint=f"it needs kind: Cluster and apiVersion: {_API_VERSION}"
        )
    networking = _mapping(content, "networking", path)
    _check_nodes(content.get("nodes") or [], path)
    known = {"kind", "apiVersion", "name", "nodes", "networking"}
    _refuse_others(content, known, path, "")
    _refuse_others(networking, {"apiServerAddress", "apiServerPort", "ipFamily"}, path, "networking.")
    if networking.get("ipFamily", "ipv4") != "ipv4":
        raise _unsupported(path, "networking.ipFamily", "the network of a plane has IPv4 addresses")
    return KindConfig(
        name=str(content.get("name") or ""),
        host=str(networking.get("apiServerAddress") or "127.0.0.1"),
        port=int(networking.get("apiServerPort") or 0),
    )


def _check_nodes(nodes: Any, path: Path) -> None:
    if not isinstance(nodes, list) or any(not isinstance(node, dict) for node in nodes):
        raise YardError(f"{path}: nodes is not a list of objects", code="BadManifest")
    if len(nodes) > 1:
        raise _unsupported(path, "nodes", f"a plane has one node, this machine, and the file asks for {len(nodes)}")
    for node in nodes:
        if node.get("role", "control-plane") != "control-plane":
            raise _unsupported(path, "nodes[0].role", "the only node is the control plane")
        _refuse_others(node, {"role", "image", "labels", "extraPortMappings", "extraMounts"}, path, "nodes[0].")
        if node.get("labels"):
            raise _unsupported(path, "nodes[0].labels", "use `kubectl label node` after the start")
        for index, mapping in enumerate(node.get("extraPortMappings") or ()):
            _check_port(mapping, path, f"nodes[0].extraPortMappings[{index}].")
        for index, mount in enumerate(node.get("extraMounts") or ()):
            _check_mount(mount, path, f"nodes[0].extraMounts[{index}].")


def _check_port(mapping: dict[str, Any], path: Path, prefix: str) -> None:
    _refuse_others(mapping, {"hostPort", "containerPort", "protocol", "listenAddress"}, path, prefix)
    if mapping.get("hostPort") != mapping.get("containerPort"):
        reason = "a node port is open on the same port of this machine: use that number"
        raise _unsupported(path, f"{prefix}hostPort", reason)
    if mapping.get("listenAddress", "127.0.0.1") != "127.0.0.1":
        raise _unsupported(path, f"{prefix}listenAddress", "node ports are open on 127.0.0.1")


def _check_mount(mount: dict[str, Any], path: Path, prefix: str) -> None:
    _refuse_others(mount, {"hostPath", "containerPath"}, path, prefix)
    if mount.get("hostPath") != mount.get("containerPath"):
        reason = "the paths of the node are those of this machine: use the same path"
        raise _unsupported(path, f"{prefix}containerPath", reason)


def _mapping(content: dict[str, Any], field: str, path: Path) -> dict[str, Any]:
    value = content.get(field) or {}
    if not isinstance(value, dict):
        raise YardError(f"{path}: {field} is not an object", code="BadManifest")
    return value


def _refuse_others(content: dict[str, Any], known: set[str], path: Path, prefix: str) -> None:
    for field in content:
        if field not in known:
            raise _unsupported(path, f"{prefix}{field}", "remove the field, or use a cluster of kind")


def _unsupported(path: Path, field: str, reason: str) -> UnsupportedConfig:
    return UnsupportedConfig(f"{path}: {field} does not work on a plane", hint=reason)
