"""Step 3 of a container's start: from its spec, image and mounts to the config that the shim starts from."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.images.model import PATH, Image
from torchyard.node.pod.container_user import container_user, effective, home_directory
from torchyard.node.pod.environment import CreateContainerConfigError, expand, missing_references
from torchyard.node.pod.hostname import sandbox_hostname
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.runtime.root_templates import RootTemplates
from torchyard.node.runtime.rootfs_steps import (
    MASKED_PATHS,
    NETWORK_FILES,
    READ_ONLY_PATHS,
    Mount,
    is_reserved,
    rootfs_steps,
)
from torchyard.node.runtime.seccomp import filters
from torchyard.node.runtime.seccomp.profile import SeccompProfileError
from torchyard.node.settings import NodeSettings
from torchyard.node.volumes.mounter import MountedVolume, VolumeError

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerConfig

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
    seccomp: bool = True  # False: this machine cannot filter system calls
    templates: RootTemplates | None = None  # None: every root is built from nothing


def build_config(options: ContainerOptions) -> ContainerConfig:
    """The config of one attempt; creates the directories and files it names."""
    container, pod_dir = options.container, options.pod_dir
    name, attempt = container["name"], options.attempt
    user = container_user(options.pod, container, options.image)
    env = {
        "PATH": PATH,
        "HOSTNAME": sandbox_hostname(options.pod, options.settings.network.domain),
        "HOME": home_directory(options.image, user["uid"]),
        **options.image.config.env,
        **options.env,
    }
    if container.get("tty"):
        env.setdefault("TERM", "xterm")
    if not options.sandboxed:
        env[POD_UID_VARIABLE] = options.pod["metadata"]["uid"]
    root = pod_dir.container(name) / f"{attempt}.root"
    message_file = pod_dir.message_file(name, attempt)
    steps = None
    context = container.get("securityContext") or {}
    privileged, capability_numbers = bool(context.get("privileged")), capabilities(context)
    may_remount = privileged or CAPABILITIES["SYS_ADMIN"] in capability_numbers
    root.mkdir(parents=True, exist_ok=True)
    message_file.touch()
    message_file.chmod(0o666)
    if options.sandboxed:
        scratch = pod_dir.container(name) / f"{attempt}.layer"
        mounts = container_mounts(options, message_file)
        steps = rootfs_steps(
            options.image.root,
            mounts,
            scratch=scratch,
            devices=list(options.devices),
            privileged=privileged,
            may_remount=may_remount,
            host_pid=bool(options.pod["spec"].get("hostPID")),
            templates=options.templates,
        )
    memory = _limit(container, "memory") or _limit(options.pod["spec"], "memory")
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
        "pid": "NODE" if options.pod["spec"].get("hostPID") else "CONTAINER",
        "masked_paths": [] if privileged else list(MASKED_PATHS),
        "read_only_paths": [] if privileged else list(READ_ONLY_PATHS),
        "cgroups": [str(path) for path in options.cgroups],
        "memory_limit": memory if memory and not options.cgroups else None,
    }


def _seccomp(options: ContainerOptions, capability_numbers: list[int]) -> str:
    """The filter program of the container's seccomp profile."""
    if not options.seccomp:
        return ""
    try:
        return filters.filter_file(options.settings.root, seccomp_profile(options), capability_numbers)
    except (OSError, SeccompProfileError) as error:
        message = messages.seccomp_profile_failed(error)
        raise CreateContainerConfigError(message, code=messages.REASON_CREATE_ERROR) from error


def seccomp_profile(options: ContainerOptions) -> str:
    """RuntimeDefault, Unconfined, or `localhost/` and the path of a profile."""
    profile = effective(options.container, options.pod, "seccompProfile") or {}
    kind = str(profile.get("type") or filters.RUNTIME_DEFAULT)
    return f"{filters.LOCALHOST}{profile.get('localhostProfile')}" if kind == "Localhost" else kind


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


def _limit(container: Object, name: str) -> int | None:
    text = ((container.get("resources") or {}).get("limits") or {}).get(name)
    return quantity.parse(str(text)).value if text is not None else None


def container_mounts(options: ContainerOptions, message_file: Path) -> list[Mount]:
    container, etc = options.container, options.pod_dir.etc
    mounts = [Mount(etc / name, f"/etc/{name}") for name in NETWORK_FILES]
    mounts.append(Mount(message_file, container.get("terminationMessagePath") or "/dev/termination-log"))
    if options.shared_memory:
        mounts.append(Mount(options.shared_memory, "/dev/shm", no_exec=True))  # noqa: S108 - a path in the container
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
    expression = mount.get("subPathExpr") or ""
    if missing := missing_references(expression, options.env):
        raise CreateContainerConfigError(messages.sub_path_value_missing(missing))
    sub_path = mount.get("subPath") or expand(expression, options.env)
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
        creation_refusal=messages.sub_path_not_created(mount["name"], options.container["name"]),
        host_path_type=volume.host_path_type,
        private=volume.private,
        refusal=refusal,
        # What the device cgroup of a container runtime does: a volume brings no device that was not allocated.
        no_devices=not (options.container.get("securityContext") or {}).get("privileged"),
    )
