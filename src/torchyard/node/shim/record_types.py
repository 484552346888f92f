"""The records of the node: what agent, zygote, namespace holder and shim write to disk and send to each other.

Only type checkers import this module. A shim counts its megabytes, and TypedDicts cost nothing at run time when they
are not imported. The names in parentheses are those of the CRI (the kubelet's container runtime interface).
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypedDict

ContainerState = Literal["starting", "running", "exited"]
Protocol = Literal["tcp", "udp"]
NamespaceMode = Literal["POD", "CONTAINER", "NODE"]  # as in the CRI

# --- files of a node -----------------------------------------------------------------------------------------------


class ClusterNetworkConfig(TypedDict):
    """The network all pods of a node are attached to."""

    bridge: str
    gateway: str
    prefix: int
    services: str
    services_prefix: int
    pods: str
    relay: NotRequired[int]  # the gateway's port for connections that leave the cluster


class PidsLimit(TypedDict):
    """How many processes and threads a pod may have."""

    parent: str  # the cgroup in which pods get theirs
    limit: int
    delegate: str  # cgroup version 2: what a pod's group passes on to its containers' groups; version 1: empty


class ZygoteSettings(TypedDict):
    """`zygote.json`: which namespaces the zygote may use, and the limit of its pods."""

    namespaces: bool
    network: ClusterNetworkConfig | None
    pids: NotRequired[PidsLimit | None]
    shifted_ids: NotRequired[bool]  # spare shims have a user namespace of their own


class NamespaceHolderRecord(TypedDict):
    """`namespaces.json`: the process that holds the node's namespaces."""

    pid: int
    startedAt: float


# --- files of a pod ------------------------------------------------------------------------------------------------


class PodNetwork(TypedDict):
    address: str
    prefix: int
    gateway: str


class TmpfsVolume(TypedDict):
    path: str
    size: int  # bytes; 0 is unlimited
    gid: NotRequired[int]  # the group that its files belong to (fsGroup)


class SandboxConfig(TypedDict):
    """`pod.json`, as far as the shim reads it (PodSandboxConfig)."""

    hostname: str
    sandboxed: bool  # the pod gets namespaces; otherwise its containers are plain processes
    network: PodNetwork | None  # None: the pod uses the machine's network
    tmpfs: NotRequired[list[TmpfsVolume]]  # missing until the pod's volumes are mounted
    ipc: NotRequired[NamespaceMode]  # POD unless it is NODE (hostIPC)
    sysctls: NotRequired[dict[str, str]]
    ids: NotRequired[int]  # the first of the machine's ids that are the pod's; missing or 0: the ids are not shifted


class PodRecord(SandboxConfig):
    """`pod.json`: what the agent decided for a pod, written before anything is created."""

    namespace: str
    name: str
    uid: str
    group: str  # the uid of the job the pod belongs to, or of the pod itself
    engine: bool  # podman or docker runs the containers
    devices: dict[str, list[str]]  # container → UUIDs
    ports: dict[str, int]  # rendezvous ports: as requested, in digits → as used
    released: NotRequired[bool]  # address and devices belong to others now


# --- files of a container ------------------------------------------------------------------------------------------


class ContainerUser(TypedDict):
    uid: int
    gid: int
    groups: list[int]


class LogConfig(TypedDict):
    path: str
    max_bytes: int
    max_files: int


class RootfsStep(TypedDict, total=False):
    """One step of building a container's root; `op` says which of the other fields it has."""

    op: Required[
        Literal[
            "directory", "bind", "machine", "tmpfs", "proc", "sys", "terminals", "mqueue", "link", "file", "overlay"
        ]
    ]
    target: Required[str]  # a path in the container
    source: str
    goal: str  # of a symbolic link
    mode: int
    size: int
    text: str
    read_only: bool
    no_devices: bool  # of a bind: device files in it cannot be opened
    in_empty_root: bool  # of a bind: nothing of an image or a pod is in the root yet
    no_exec: bool  # and nosuid and nodev
    optional: bool
    recursive: bool
    from_root: bool  # the source is a path in the container, not on the machine
    no_follow: bool  # the source itself must not be a symbolic link
    sub_path: str  # below the source, which it must not leave; created as a directory if missing
    host_path_type: str  # the source is a hostPath, checked when it is opened
    private: list[str]  # directories that a hostPath must neither be, contain nor belong to
    creation_refusal: str  # the error of a container whose subPath cannot be created
    refusal: str  # the error of a container whose source must not be mounted
    lower: list[tuple[str, str]]  # a layer, and a directory in it; the highest one first
    upper: str
    work: str
    template: bool  # of an overlay: without overlays the layer is copied
    in_memory: bool  # of a bind: the source is a tmpfs that the shim has mounted
    descriptor: int  # of such a bind: the source, open
    file: int  # of a bind: the mount is ready, and this is its place among the files of the request
    layers: list[int]  # of an overlay: as `lower`, by their places among the files of the request
    scratch: int  # of an overlay: the directory that `upper` and `work` are relative to


class ContainerConfig(TypedDict):
    """`<attempt>.launch`: how one attempt of a container is started (ContainerConfig)."""

    container: str
    attempt: int
    id: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    user: ContainerUser
    tty: bool
    stdin: bool
    stdin_once: bool
    log: LogConfig
    root: list[RootfsStep] | None  # None: a plain process that sees the machine's root
    root_directory: str
    root_file: NotRequired[int]  # the root is ready to be mounted; as `RootfsStep.file`
    shifted: NotRequired[bool]  # the container has the ids of its pod
    read_only_root: bool
    privileged: bool
    capabilities: list[int]
    no_new_privileges: bool
    seccomp: str  # path of the filter program; empty: unconfined
    masked_paths: list[str]  # paths of the container that are covered by an empty file or directory
    read_only_paths: list[str]  # paths of the container that are read-only whatever file system they are on
    pid: NotRequired[NamespaceMode]  # CONTAINER unless it is NODE (hostPID)
    cgroups: list[str]
    memory_limit: int | None  # bytes the shim enforces; None where cgroups do, or without a limit
    kill: NotRequired[list[str]]  # a container engine's command that kills the container
    enter: NotRequired[list[str]]  # a container engine's command that runs another process in it


class ContainerRecord(TypedDict):
    """`<attempt>.record`: what became of one attempt of a container (ContainerStatus)."""

    container: str
    attempt: int
    id: str
    state: ContainerState
    createdAt: str
    pid: NotRequired[int]
    startedAt: NotRequired[str]
    finishedAt: NotRequired[str]
    exitCode: NotRequired[int]
    signal: NotRequired[int]
    reason: NotRequired[str]
    message: NotRequired[str]
    nodeStopped: NotRequired[bool]


# --- requests ------------------------------------------------------------------------------------------------------


class StartShimRequest(TypedDict):
    op: Literal["shim"]
    pod: str  # the pod's directory


class ReadyReply(TypedDict):
    """To a shim without a pod that has entered its namespaces."""

    error: NotRequired[str]  # its network cannot be attached


class PodAssignment(TypedDict):
    """To a shim that is ready. The file sent along is the connection of the client who asked for the shim."""

    pod: str  # the pod's directory
    error: NotRequired[str]  # the ids of the pod cannot be mapped


class StartRequest(TypedDict):
    """The files sent along are the mounts that the container's config refers to."""

    op: Literal["start"]
    container: str
    attempt: int


class SignalRequest(TypedDict):
    op: Literal["signal"]
    container: str
    signal: int


class TerminalSize(TypedDict):
    rows: int
    columns: int


class ExecRequest(TypedDict):
    """The files sent along are stdin, stdout and stderr; none with a terminal."""

    op: Literal["exec"]
    container: str
    argv: list[str]
    tty: bool
    env: NotRequired[dict[str, str]]
    size: NotRequired[TerminalSize | None]


class AttachRequest(TypedDict):
    """The files sent along receive copies of stdout and stderr."""

    op: Literal["attach"]
    container: str
    stdin: bool


class ShutdownRequest(TypedDict):
    op: Literal["shutdown"]
    node_stops: NotRequired[bool]  # the whole node stops: containers are marked so in their records


class SocketRequest(TypedDict):
    """A socket of the pod's or the cluster's network."""

    op: Literal["connect", "listen", "close"]
    kind: NotRequired[Protocol]
    host: str
    port: int


# --- replies -------------------------------------------------------------------------------------------------------


class ErrorReply(TypedDict):
    error: str
    code: str  # one of the codes in `wire`
    errno: NotRequired[int]


class HelloReply(TypedDict):
    pid: int
    containers: NotRequired[list[ContainerRecord]]


class StartReply(TypedDict):
    record: ContainerRecord


class StartFailure(TypedDict):
    """What a child process reports through its pipe when it cannot exec."""

    code: int
    message: str
    refused: NotRequired[bool]  # a mount was refused: the attempt did not take place


class ExecReply(TypedDict, total=False):
    """`started` or `failed` first, `exited` later."""

    started: Literal[True]
    failed: StartFailure
    exited: int
    error: str


class AttachReply(TypedDict):
    """The file sent along is the container's input, if `stdin`."""

    tty: bool
    stdin: bool


class StateChange(TypedDict):
    """What subscribers receive."""

    container: str
    attempt: int
    state: ContainerState


Message = dict[str, Any]
