"""Step 3 of a container's start: from its spec, image and mounts to the config that the shim starts from."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.images.model import PATH, Image
from torchyard.node.pod.environment import CreateContainerConfigError, expand
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.runtime.rootfs_steps import MASKED_PATHS, READ_ONLY_PATHS, Mount, is_reserved, rootfs_steps
from torchyard.node.runtime.seccomp import filters
from torchyard.node.settings import NodeSettings
from torchyard.node.volumes.mounter import MountedVolume, VolumeError, resolve_sub_path

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerConfig, ContainerUser

POD_UID_VARIABLE = "TORCHYARD_POD_UID"  # marks a pod's processes where it has no pid namespace

# In the kernel's order: a capability's number is its position.
_ALL = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
CAPABILITIES = {name: number for number, name in enumerate(_ALL)}
# What container runtimes leave a container by default.
_DEFAULT = (
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
    "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """What a container's config is built from (the kubelet's RunContainerOptions)."""

    pod: Object
    container: Object
    attempt: int
    image: Image
    env: Mapping[str, str]
    volumes: Mapping[str, MountedVolume]
    pod_dir: PodDir
    settings: NodeSettings
    sandboxed: bool
    devices: tuple[Path, ...] = ()
    shared_memory: Path | None = None
    cgroups: tuple[Path, ...] = ()


def build_config(options: ContainerOptions) -> ContainerConfig:
    """The config of one attempt; creates the directories and files it names."""
    container, pod_dir = options.container, options.pod_dir
    name, attempt = container["name"], options.attempt
    env = {"PATH": PATH, "HOSTNAME": hostname(options.pod), "HOME": "/root", **options.image.config.env, **options.env}
    if container.get("tty"):
        env.setdefault("TERM", "xterm")
    if not options.sandboxed:
        env[POD_UID_VARIABLE] = options.pod["metadata"]["uid"]
    root = pod_dir.container(name) / f"{attempt}.root"
    root.mkdir(parents=True, exist_ok=True)
    message_file = pod_dir.message_file(name, attempt)
    message_file.touch()
    message_file.chmod(0o666)
    steps = None
    context = container.get("securityContext") or {}
    privileged = bool(context.get("privileged"))
    if options.sandboxed:
        scratch = pod_dir.container(name) / f"{attempt}.layer"
        mounts = _mounts(options, message_file)
        steps = rootfs_steps(
            options.image.root, mounts, scratch=scratch, devices=list(options.devices), privileged=privileged
        )
    capability_numbers = capabilities(context)
    memory = _limit(container, "memory")
    user = container_user(options)
    if user["uid"]:
        env["HOME"] = options.env.get("HOME") or "/"
    return {
        "container": name,
        "attempt": attempt,
        "id": secrets.token_hex(32),
        "argv": argv(container, options.image, env),
        "env": env,
        "cwd": container.get("workingDir") or (options.image.config.directory if options.sandboxed else str(root)),
        "user": user,
        "tty": bool(container.get("tty")),
        "stdin": bool(container.get("stdin")),
        "stdin_once": bool(container.get("stdinOnce")),
        "log": {
            "path": str(pod_dir.log(name, attempt)),
            "max_bytes": options.settings.log_max_bytes,
            "max_files": options.settings.log_max_files,
        },
        "root": steps,
        "root_directory": str(root),
        "read_only_root": bool(context.get("readOnlyRootFilesystem")),
        "privileged": privileged,
        "capabilities": capability_numbers,
        "no_new_privileges": context.get("allowPrivilegeEscalation") is False,
        "seccomp": _seccomp(options, capability_numbers) if options.sandboxed and not privileged else "",
        "masked_paths": [] if privileged else list(MASKED_PATHS),
        "read_only_paths": [] if privileged else list(READ_ONLY_PATHS),
        "cgroups": [str(path) for path in options.cgroups],
        "memory_limit": memory if memory and not options.cgroups else None,
    }


def _seccomp(options: ContainerOptions, capability_numbers: list[int]) -> str:
    """The filter program of the container's seccomp profile."""
    if not filters.is_supported():
        return ""
    return filters.filter_file(options.settings.root, filters.RUNTIME_DEFAULT, capability_numbers)


def argv(container: Object, image: Image, env: Mapping[str, str]) -> list[str]:
    """`command` replaces the entrypoint and, with it, the image's own arguments; `args` replaces those alone."""
    command, arguments = container.get("command") or (), container.get("args") or ()
    if command:
        words = [*command, *arguments]
    else:
        words = [*image.config.entrypoint, *(arguments or image.config.command)]
    if not words and not image.engine:
        raise CreateContainerConfigError(messages.NO_COMMAND, code=messages.REASON_CREATE_ERROR)
    return [expand(word, env) for word in words]


def hostname(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def capabilities(context: Object) -> list[int]:
    changes = context.get("capabilities") or {}
    names = set(_DEFAULT)
    drop = {name.upper().removeprefix("CAP_") for name in changes.get("drop") or ()}
    add = {name.upper().removeprefix("CAP_") for name in changes.get("add") or ()}
    names = set() if "ALL" in drop else names - drop
    names |= set(CAPABILITIES) if "ALL" in add else add
    unknown = names - set(CAPABILITIES)
    if unknown:
        raise CreateContainerConfigError(messages.unknown_capability(min(unknown)), code=messages.REASON_CREATE_ERROR)
    return sorted(CAPABILITIES[name] for name in names)


def container_user(options: ContainerOptions) -> ContainerUser:
    """runAsUser, runAsGroup, fsGroup: the container's value, then the pod's, then the image's USER."""
    pod = options.pod["spec"].get("securityContext") or {}
    own = options.container.get("securityContext") or {}
    uid, gid = _first(own, pod, "runAsUser"), _first(own, pod, "runAsGroup")
    if uid is None:
        uid, image_gid = _parse_user(options.image.config.user)
        gid = image_gid if gid is None else gid
    if _first(own, pod, "runAsNonRoot") and uid == 0:
        by_user = _first(own, pod, "runAsUser") == 0
        metadata = options.pod["metadata"]
        raise CreateContainerConfigError(
            messages.breaks_non_root(
                messages.NON_ROOT_BY_USER if by_user else messages.NON_ROOT_BY_IMAGE,
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                container=options.container["name"],
            )
        )
    groups = list(pod.get("supplementalGroups") or ()) + ([pod["fsGroup"]] if pod.get("fsGroup") is not None else [])
    return {"uid": uid, "gid": gid or 0, "groups": groups}


def _first(own: Object, pod: Object, key: str) -> Any:
    return own[key] if own.get(key) is not None else pod.get(key)


def _parse_user(text: str) -> tuple[int, int | None]:
    """`USER` of an image: number or name, with or without a group."""
    user, _, group = text.partition(":")
    if not user:
        return 0, None
    gid = int(group) if group.isdigit() else None
    if user.isdigit():
        return int(user), gid
    for line in Path("/etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == user:
            return int(fields[2]), gid if gid is not None else int(fields[3])
    raise CreateContainerConfigError(messages.unknown_user(user), code=messages.REASON_CREATE_ERROR)


def _limit(container: Object, name: str) -> int | None:
    text = ((container.get("resources") or {}).get("limits") or {}).get(name)
    return quantity.parse(str(text)).value if text is not None else None


def _mounts(options: ContainerOptions, message_file: Path) -> list[Mount]:
    container, etc = options.container, options.pod_dir.etc
    mounts = [Mount(etc / name, f"/etc/{name}") for name in ("hosts", "resolv.conf", "hostname")]
    mounts.append(Mount(message_file, container.get("terminationMessagePath") or "/dev/termination-log"))
    if options.shared_memory:
        mounts.append(Mount(options.shared_memory, "/dev/shm"))  # noqa: S108 - a path in the container
    volume_mounts = container.get("volumeMounts") or ()
    covered = {mount["mountPath"].rstrip("/") for mount in volume_mounts}
    mounts = [mount for mount in mounts if mount.target not in covered]
    return mounts + [_volume_mount(options, mount) for mount in volume_mounts]


def _volume_mount(options: ContainerOptions, mount: Object) -> Mount:
    volume = options.volumes.get(mount["name"])
    if volume is None:
        raise VolumeError(messages.volume_not_in_pod(mount["name"]))
    target = mount["mountPath"]
    if is_reserved(target):
        raise CreateContainerConfigError(messages.mount_path_reserved(target), code=messages.REASON_CREATE_ERROR)
    sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", options.env)
    if sub_path.startswith("/"):
        raise CreateContainerConfigError(messages.sub_path_absolute(sub_path))
    if ".." in sub_path.split("/"):
        raise CreateContainerConfigError(messages.sub_path_backsteps(sub_path))
    refusal = messages.volume_changed(mount["name"], volume.path)
    if sub_path:
        refusal = messages.sub_path_refused(mount["name"], options.container["name"])
    return Mount(
        volume.path,
        target,
        read_only=bool(mount.get("readOnly")) or volume.read_only,
        sub_path=sub_path,
        host_path_type=volume.host_path_type,
        private=volume.private,
        refusal=refusal,
    )


def engine_config(config: ContainerConfig, options: ContainerOptions, *, engine: str, name: str) -> ContainerConfig:
    """The same container, run by podman or docker, whose client is the process: it forwards signals and output."""
    container = options.container
    flags = ["--name", name, "--network", "host"]
    if container.get("workingDir"):
        flags += ["--workdir", container["workingDir"]]
    mark = {POD_UID_VARIABLE: options.pod["metadata"]["uid"]}  # finds a container that outlives its shim
    for key, value in {**options.env, **mark}.items():
        flags += ["--env", f"{key}={value}"]
    for mount in _mounts(options, options.pod_dir.message_file(container["name"], options.attempt)):
        source = resolve_sub_path(mount.source, mount.sub_path) if mount.sub_path else mount.source
        flags += ["--volume", f"{source}:{mount.target}{':ro' if mount.read_only else ''}"]
    if config["user"]["uid"]:
        flags += ["--user", f"{config['user']['uid']}:{config['user']['gid']}"]
    if config["stdin"]:
        flags.append("--interactive")
    arguments = list(container.get("args") or ())
    if container.get("command"):
        flags += ["--entrypoint", container["command"][0]]
        arguments = [*container["command"][1:], *arguments]
    arguments = [expand(argument, config["env"]) for argument in arguments]
    return {
        **config,
        "argv": [engine, "run", "--rm", *flags, container["image"], *arguments],
        "root": None,
        "seccomp": "",
        "cwd": "/",
        "kill": [engine, "kill", name],
        "enter": [engine, "exec", name],
        # The client is a program of the machine: it finds its settings and images through the agent's environment.
        "env": {**os.environ, **mark},
    }
