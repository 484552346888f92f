"""The config of a container that podman or docker runs: the fields of its spec become options of the engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torchyard.api import quantity
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.pod.container_config import (
    POD_UID_VARIABLE,
    ContainerOptions,
    container_mounts,
    seccomp_profile,
)
from torchyard.node.pod.environment import CreateContainerConfigError, expand
from torchyard.node.pod.hostname import sandbox_hostname
from torchyard.node.resources.cgroups import MAX_MEMORY
from torchyard.node.runtime.seccomp import filters
from torchyard.node.volumes.mounter import resolve_sub_path

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerConfig


def engine_config(config: ContainerConfig, options: ContainerOptions, *, engine: str, name: str) -> ContainerConfig:
    """The same container, run by podman or docker, whose client is the process: it forwards signals and output."""
    container = options.container
    mark = {POD_UID_VARIABLE: options.pod["metadata"]["uid"]}  # finds a container that outlives its shim
    flags = ["--name", name, "--network", "host", *_environment_flags(options, mark), *_mount_flags(options)]
    flags += [*_security_flags(config, options), *_limit_flags(options)]
    if container.get("workingDir"):
        flags += ["--workdir", container["workingDir"]]
    if config["stdin"]:
        flags.append("--interactive")
    if config["tty"]:
        flags.append("--tty")
    arguments = list(container.get("args") or ())
    if container.get("command"):
        flags += ["--entrypoint", container["command"][0]]
        arguments = [*container["command"][1:], *arguments]
    arguments = [expand(argument, config["env"]) for argument in arguments]
    return {
        **config,
        "argv": [engine, "run", "--rm", *flags, container["image"], *arguments],
        "root": None,
        "user": {"uid": 0, "gid": 0, "groups": []},  # of the client; the engine sets that of the container
        "seccomp": "",
        "cwd": "/",
        "kill": [engine, "kill", name],
        "enter": [engine, "exec", name],
        # The client is a program of the machine: it finds its settings and images through the agent's environment.
        "env": {**os.environ, **mark},
    }


def _environment_flags(options: ContainerOptions, mark: dict[str, str]) -> list[str]:
    return [flag for key, value in {**options.env, **mark}.items() for flag in ("--env", f"{key}={value}")]


def _mount_flags(options: ContainerOptions) -> list[str]:
    message_file = options.pod_dir.message_file(options.container["name"], options.attempt)
    flags: list[str] = []
    for mount in container_mounts(options, message_file):
        source = resolve_sub_path(mount.source, mount.sub_path) if mount.sub_path else mount.source
        if ":" in f"{source}{mount.target}":  # it separates the parts of the flag
            raise CreateContainerConfigError(messages.engine_path_unsupported(source))
        flags += ["--volume", f"{source}:{mount.target}{':ro' if mount.read_only else ''}"]
    return flags


def _security_flags(config: ContainerConfig, options: ContainerOptions) -> list[str]:
    """What the container is allowed, and which namespaces of the machine it uses."""
    spec, user = options.pod["spec"], config["user"]
    changes = (options.container.get("securityContext") or {}).get("capabilities") or {}
    flags: list[str] = []
    if user["uid"]:
        flags += ["--user", f"{user['uid']}:{user['gid']}"]
    for group in user["groups"]:
        if group != user["gid"]:
            flags += ["--group-add", str(group)]
    for option, capabilities in (("--cap-drop", changes.get("drop")), ("--cap-add", changes.get("add"))):
        flags += [flag for capability in capabilities or () for flag in (option, capability)]
    if config["privileged"]:
        flags.append("--privileged")
    if config["read_only_root"]:
        flags.append("--read-only")
    if config["no_new_privileges"]:
        flags += ["--security-opt", "no-new-privileges"]
    if seccomp_profile(options) == filters.UNCONFINED:
        flags += ["--security-opt", "seccomp=unconfined"]
    if spec.get("hostPID"):
        flags += ["--pid", "host"]
    if spec.get("hostIPC"):
        flags += ["--ipc", "host"]
    if spec.get("hostname") or spec.get("setHostnameAsFQDN"):
        flags += ["--hostname", sandbox_hostname(options.pod, options.settings.network.domain)]
    return flags


def _limit_flags(options: ContainerOptions) -> list[str]:
    limits = (options.container.get("resources") or {}).get("limits") or {}
    flags: list[str] = []
    if "memory" in limits:
        flags += ["--memory", str(min(quantity.parse(str(limits["memory"])).value, MAX_MEMORY))]
    if "cpu" in limits:
        flags += ["--cpus", f"{quantity.parse(str(limits['cpu'])).milli / 1000:g}"]
    return flags
