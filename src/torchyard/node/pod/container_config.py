"""From a container's spec, its image and its mounts to the launch a shim carries out."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.node.images.model import PATH, Image
from torchyard.node.pod.environment import CreateContainerConfigError, expand
from torchyard.node.pod.pod_dir import PodDir
from torchyard.node.runtime.rootfs_steps import Mount, is_reserved, root_steps
from torchyard.node.settings import NodeSettings
from torchyard.node.volumes.mounter import MountedVolume, VolumeError, below

MARK = "TORCHYARD_POD_UID"  # a variable by which a pod's processes are found where no namespace holds them together

# in the kernel's order: a capability's number is its place
_ALL = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
CAPABILITIES = {name: number for number, name in enumerate(_ALL)}
# what container runtimes leave a container by default
_DEFAULT = (
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
    "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """What a launch is put together from."""

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


def build(options: ContainerOptions) -> Object:
    """The launch of one attempt; makes the directories and files it names."""
    container, pod_dir = options.container, options.pod_dir
    name, attempt = container["name"], options.attempt
    env = {"PATH": PATH, "HOSTNAME": hostname(options.pod), "HOME": "/root", **options.image.config.env, **options.env}
    if container.get("tty"):
        env.setdefault("TERM", "xterm")
    if not options.sandboxed:
        env[MARK] = options.pod["metadata"]["uid"]
    root = pod_dir.container(name) / f"{attempt}.root"
    root.mkdir(parents=True, exist_ok=True)
    message = pod_dir.message_file(name, attempt)
    message.touch()
    message.chmod(0o666)
    steps = None
    if options.sandboxed:
        scratch = pod_dir.container(name) / f"{attempt}.layer"
        steps = root_steps(
            options.image.root, _mounts(options, message), scratch=scratch, devices=list(options.devices)
        )
    context = container.get("securityContext") or {}
    memory = _limit(container, "memory")
    user = identity(options)
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
        "privileged": bool(context.get("privileged")),
        "capabilities": capabilities(context),
        "no_new_privileges": context.get("allowPrivilegeEscalation") is False,
        "cgroups": [str(path) for path in options.cgroups],
        "memory_limit": memory if memory and not options.cgroups else None,
    }


def argv(container: Object, image: Image, env: Mapping[str, str]) -> list[str]:
    """`command` replaces the entrypoint and, with it, the image's own arguments; `args` replaces those alone."""
    command, arguments = container.get("command") or (), container.get("args") or ()
    if command:
        words = [*command, *arguments]
    else:
        words = [*image.config.entrypoint, *(arguments or image.config.command)]
    if not words and not image.engine:
        raise CreateContainerConfigError("no command specified", code="CreateContainerError")
    return [expand(word, env) for word in words]


def hostname(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def capabilities(context: Object) -> list[int]:
    asked = context.get("capabilities") or {}
    names = set(_DEFAULT)
    drop = {one.upper().removeprefix("CAP_") for one in asked.get("drop") or ()}
    add = {one.upper().removeprefix("CAP_") for one in asked.get("add") or ()}
    names = set() if "ALL" in drop else names - drop
    names |= set(CAPABILITIES) if "ALL" in add else add
    unknown = names - set(CAPABILITIES)
    if unknown:
        raise CreateContainerConfigError(
            f'unknown capability to add: "CAP_{min(unknown)}"', code="CreateContainerError"
        )
    return sorted(CAPABILITIES[name] for name in names)


def identity(options: ContainerOptions) -> Object:
    """runAsUser and its kin: the container's word, then the pod's, then the image's USER."""
    pod = options.pod["spec"].get("securityContext") or {}
    own = options.container.get("securityContext") or {}
    uid, gid = _first(own, pod, "runAsUser"), _first(own, pod, "runAsGroup")
    if uid is None:
        uid, image_gid = _user_of(options.image.config.user)
        gid = image_gid if gid is None else gid
    if _first(own, pod, "runAsNonRoot") and uid == 0:
        whose = "runAsUser" if _first(own, pod, "runAsUser") == 0 else "image"
        told = (
            "container's runAsUser breaks non-root policy"
            if whose == "runAsUser"
            else "container has runAsNonRoot and image will run as root"
        )
        raise CreateContainerConfigError(
            f"{told} (pod: {_pod_words(options.pod)}, container: {options.container['name']})"
        )
    groups = list(pod.get("supplementalGroups") or ()) + ([pod["fsGroup"]] if pod.get("fsGroup") is not None else [])
    return {"uid": uid, "gid": gid or 0, "groups": groups}


def _pod_words(pod: Object) -> str:
    metadata = pod["metadata"]
    return f'"{metadata["name"]}_{metadata["namespace"]}({metadata["uid"]})"'


def _first(own: Object, pod: Object, key: str) -> Any:
    return own[key] if own.get(key) is not None else pod.get(key)


def _user_of(text: str) -> tuple[int, int | None]:
    """`USER` of an image: number or name, perhaps with a group."""
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
    raise CreateContainerConfigError(
        f"unable to find user {user}: no matching entries in passwd file", code="CreateContainerError"
    )


def _limit(container: Object, name: str) -> int | None:
    text = ((container.get("resources") or {}).get("limits") or {}).get(name)
    return quantity.parse(str(text)).value if text is not None else None


def _mounts(options: ContainerOptions, message: Path) -> list[Mount]:
    container, etc = options.container, options.pod_dir.etc
    mounts = [Mount(etc / name, f"/etc/{name}") for name in ("hosts", "resolv.conf", "hostname")]
    mounts.append(Mount(message, container.get("terminationMessagePath") or "/dev/termination-log"))
    if options.shared_memory:
        mounts.append(Mount(options.shared_memory, "/dev/shm"))  # noqa: S108 - a place in the container
    taken = {mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts") or ()}
    mounts = [mount for mount in mounts if mount.target not in taken]
    for mount in container.get("volumeMounts") or ():
        prepared = options.volumes.get(mount["name"])
        if prepared is None:
            raise VolumeError(f'volume "{mount["name"]}" is not among the pod\'s volumes')
        target = mount["mountPath"]
        if is_reserved(target):
            raise CreateContainerConfigError(f"a volume cannot be mounted on {target}", code="CreateContainerError")
        source = prepared.path
        sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", options.env)
        if sub_path:
            source = below(source, sub_path)
        mounts.append(Mount(source, target, read_only=bool(mount.get("readOnly")) or prepared.read_only))
    return mounts


def engine_launch(launch: Object, options: ContainerOptions, *, engine: str, tag: str) -> Object:
    """The same container, run by podman or docker: its client is the process, and passes on signals and output."""
    container = options.container
    flags = ["--name", tag, "--network", "host"]
    if container.get("workingDir"):
        flags += ["--workdir", container["workingDir"]]
    mark = {MARK: options.pod["metadata"]["uid"]}  # by which what outlives its shim is found
    for key, value in {**options.env, **mark}.items():
        flags += ["--env", f"{key}={value}"]
    for mount in _mounts(options, options.pod_dir.message_file(container["name"], options.attempt)):
        flags += ["--volume", f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"]
    if launch["user"]["uid"]:
        flags += ["--user", f"{launch['user']['uid']}:{launch['user']['gid']}"]
    if launch["stdin"]:
        flags.append("--interactive")
    words = list(container.get("args") or ())
    if container.get("command"):
        flags += ["--entrypoint", container["command"][0]]
        words = [*container["command"][1:], *words]
    words = [expand(word, launch["env"]) for word in words]
    run = [engine, "run", "--rm", *flags, container["image"], *words]
    by_engine = {"argv": run, "root": None, "cwd": "/", "kill": [engine, "kill", tag], "enter": [engine, "exec", tag]}
    # the engine's client is a program of the machine: it finds its settings and images through our own environment
    return {**launch, **by_engine, "env": {**os.environ, **mark}}


def described(launch: Object) -> str:
    return shlex.join(launch["argv"])
