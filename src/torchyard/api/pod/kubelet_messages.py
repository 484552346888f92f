"""Reasons and messages that a node writes about a pod and its containers. Most are the kubelet's, letter for letter."""

from __future__ import annotations

from collections.abc import Iterable

# Reasons of events.
REASON_BACK_OFF = "BackOff"
REASON_CREATED = "Created"
REASON_EVICTED = "Evicted"
REASON_FAILED = "Failed"
REASON_FAILED_MOUNT = "FailedMount"
REASON_FAILED_POST_START_HOOK = "FailedPostStartHook"
REASON_FAILED_PRE_STOP_HOOK = "FailedPreStopHook"
REASON_FAILED_SANDBOX = "FailedCreatePodSandBox"
REASON_FIELD_IGNORED = "FieldIgnored"  # ours
REASON_INSPECT_FAILED = "InspectFailed"
REASON_KILLING = "Killing"
REASON_PORT_REPLACED = "PortReplaced"  # ours
REASON_PULLED = "Pulled"
REASON_PULLING = "Pulling"
REASON_STARTED = "Started"
REASON_UNHEALTHY = "Unhealthy"
REASON_PROBE_WARNING = "ProbeWarning"

# Reasons of a container's waiting state.
REASON_CRASH_LOOP = "CrashLoopBackOff"
REASON_CREATE_CONFIG_ERROR = "CreateContainerConfigError"
REASON_CREATE_ERROR = "CreateContainerError"
REASON_IMAGE_PULL = "ErrImagePull"
REASON_IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
REASON_IMAGE_NEVER_PULL = "ErrImageNeverPull"
REASON_INVALID_IMAGE_NAME = "InvalidImageName"

# Reasons of a pod's status.
REASON_ADMISSION_ERROR = "UnexpectedAdmissionError"
REASON_APP_ARMOR = "AppArmor"
REASON_DEADLINE = "DeadlineExceeded"
REASON_OS_NOT_SUPPORTED = "PodOSNotSupported"
REASON_NODE_PORTS = "NodePorts"
REASON_SYSCTL_FORBIDDEN = "SysctlForbidden"
DEADLINE = "Pod was active on the node longer than the specified deadline"


# --- admission by the node -------------------------------------------------------------------------------

NODE_PORTS_TAKEN = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
OS_NOT_SUPPORTED = "Failed to admit pod as the OS field doesn't match node OS"
NO_APP_ARMOR = "Cannot enforce AppArmor: AppArmor is not enabled on the host"


def rejected(message: str) -> str:
    return f"Pod was rejected: {message}"


def sysctl_not_allowed(name: str) -> str:
    return f'forbidden sysctl: "{name}" not allowlisted'


def sysctl_of_host(name: str, namespace: str) -> str:
    """`namespace` is net or ipc."""
    return f'forbidden sysctl: "{name}" not allowed with host {namespace} enabled'


def runtime_class_missing(name: str) -> str:
    return f'RuntimeClass "{name}" not found'


def no_runtime(handler: str) -> str:
    return f'no runtime for "{handler}" is configured'


def group_without_user(group: int) -> str:
    return f'failed to generate user string: user group "{group}" is specified without user'


# --- eviction by the node: the final spaces are the kubelet's ---------------------------------------------


def empty_dir_exceeded(volume: str, limit: str) -> str:
    return f'Usage of EmptyDir volume "{volume}" exceeds the limit "{limit}". '


def pod_storage_exceeded(limit: str) -> str:
    return f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "


def container_storage_exceeded(container: str, limit: str) -> str:
    return f'Container {container} exceeded its local ephemeral storage limit "{limit}". '


# --- images ----------------------------------------------------------------------------------------------


def image_present(image: str) -> str:
    return f'Container image "{image}" already present on machine'


def image_never_pulled(image: str) -> str:
    return f'Container image "{image}" is not present with pull policy of Never'


def image_pulling(image: str) -> str:
    return f'Pulling image "{image}"'


def image_pull_failed(image: str, error: object) -> str:
    return f'Failed to pull image "{image}": {error}'


def image_back_off(image: str) -> str:
    return f'Back-off pulling image "{image}"'


def image_name_invalid(name: str) -> str:
    return f'Failed to apply default image tag "{name}": couldn\'t parse image name "{name}": invalid reference format'


def image_missing(name: str) -> str:
    return f'image "{name}" does not exist on this node, and the node has no registry to pull it from'


def image_missing_hint(short_name: str) -> str:
    return (
        f"build it with: yard image build -t {short_name} DIR, "
        f"or map it with: yard image map {short_name} pytorch/pytorch"
    )


# --- containers ------------------------------------------------------------------------------------------


def sub_path_absolute(sub_path: str) -> str:
    return f"error SubPath `{sub_path}` must not be an absolute path"


def sub_path_backsteps(sub_path: str) -> str:
    return f"unable to provision SubPath `{sub_path}`: must not contain '..'"


def sub_path_refused(volume: str, container: str) -> str:
    return f'failed to prepare subPath for volumeMount "{volume}" of container "{container}"'


def sub_path_not_created(volume: str, container: str) -> str:
    return f'failed to create subPath directory for volumeMount "{volume}" of container "{container}"'


def volume_changed(volume: str, path: object) -> str:
    return f'hostPath {path} of volume "{volume}" changed while the container started; it is not mounted'


def engine_path_unsupported(path: object) -> str:
    return f"{path} contains a colon: a container engine cannot mount it"


def shared_memory_taken(path: object) -> str:
    return f"{path} is not a directory of this node alone; remove it to let pods share their memory"


def created(container: str) -> str:
    return f"Created container: {container}"


def started(container: str) -> str:
    return f"Started container {container}"


def stopping(container: str) -> str:
    return f"Stopping container {container}"


def failed(error: object) -> str:
    return f"Error: {error}"


def crash_back_off(container: str, pod: str) -> str:
    """`pod` as the kubelet writes it: name_namespace(uid)."""
    return f"Back-off restarting failed container {container} in pod {pod}"


NO_COMMAND = "no command specified"
NON_ROOT_BY_USER = "container's runAsUser breaks non-root policy"
NON_ROOT_BY_IMAGE = "container has runAsNonRoot and image will run as root"


def non_root_by_name(user: str) -> str:
    return f"container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"


def breaks_non_root(policy: str, *, name: str, namespace: str, uid: str, container: str) -> str:
    return f'{policy} (pod: "{name}_{namespace}({uid})", container: {container})'


def unknown_capability(name: str) -> str:
    return f'unknown capability to add: "CAP_{name}"'


def unknown_user(name: str) -> str:
    return f"unable to find user {name}: no matching entries in passwd file"


def unknown_group(name: str) -> str:
    return f"unable to find group {name}: no matching entries in group file"


def seccomp_profile_failed(error: object) -> str:
    return f"failed to load the seccomp profile: {error}"


def object_not_found(kind: str, name: str) -> str:
    """A config map or secret that a variable or a volume refers to."""
    return f'{kind.lower()} "{name}" not found'


def key_not_found(kind: str, namespace: str, name: str, key: str) -> str:
    return f"couldn't find key {key} in {kind} {namespace}/{name}"


def unsupported_field_path(path: str) -> str:
    return f"unsupported fieldPath: {path}"


def mount_path_reserved(path: str) -> str:
    return f"a volume cannot be mounted on {path}"


def volume_not_in_pod(volume: str) -> str:
    return f'volume "{volume}" is not among the pod\'s volumes'


# --- probes and hooks ------------------------------------------------------------------------------------


def probe_failed(kind: str, message: str) -> str:
    """`kind` is Startup, Readiness or Liveness."""
    return f"{kind} probe failed: {message}"


def probe_warning(kind: str, message: str) -> str:
    return f"{kind} probe warning: {message}"


def probe_errored(kind: str, error: object) -> str:
    """The probe was not run, which says nothing about the container."""
    return f"{kind} probe errored and resulted in unknown state: {error}"


def killed_by_probe(container: str, kind: str) -> str:
    return f"Container {container} failed {kind} probe, will be restarted"


def post_start_failed(message: str) -> str:
    return f"PostStartHook failed: {message}"


def pre_stop_failed(message: str) -> str:
    return f"PreStopHook failed: {message}"


def command_timed_out(command: list[str], seconds: float) -> str:
    return f"command timed out: {' '.join(command)!r} timed out after {seconds:g}s"


def command_exited(code: int) -> str:
    return f"command exited with code {code}"


def dial_failed(host: str, port: int, error: str) -> str:
    return f"dial tcp {host}:{port}: connect: {error}"


def dial_timed_out(host: str, port: int) -> str:
    return f"dial tcp {host}:{port}: i/o timeout"


def get_failed(url: str, error: object) -> str:
    return f'Get "{url}": {error}'


def redirect_not_followed(body: str) -> str:
    return f"Probe terminated redirects, Response body: {body}"


def unsupported_scheme(scheme: str) -> str:
    return f'unsupported protocol scheme "{scheme}"'


TOO_MANY_REDIRECTS = "stopped after 10 redirects"
HEADERS_TOO_LARGE = "the headers of the response are too large"
GET_TIMED_OUT = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


def http_status(status: int) -> str:
    return f"HTTP probe failed with statuscode: {status}"


def malformed_response(head: bytes) -> str:
    return f"malformed HTTP response {head!r}"


def no_such_port(container: str, port: str) -> str:
    return f"container {container} has no port named {port!r}"


def sub_path_value_missing(names: Iterable[str]) -> str:
    return f"missing value for {', '.join(names)}"


def grpc_not_connected(address: str, seconds: float) -> str:
    return f'timeout: failed to connect service "{address}" within {seconds:g}s: context deadline exceeded'


def grpc_timed_out(seconds: float) -> str:
    return f"timeout: health rpc did not complete within {seconds:g}s"


def grpc_failed(error: object) -> str:
    return f"error: health rpc probe failed: {error}"


def grpc_unhealthy(status: str) -> str:
    return f'service unhealthy (responded with "{status}")'


def handler_unsupported(fields: Iterable[str]) -> str:
    return f"this node does not support {', '.join(sorted(fields))} handlers"


# --- sandbox ---------------------------------------------------------------------------------------------


def mount_failed(volume: str, error: object) -> str:
    return f'MountVolume.SetUp failed for volume "{volume}" : {error}'


def sandbox_failed(error: object) -> str:
    return f"Failed to create pod sandbox: {error}"


def name_too_long(name: str, limit: int) -> str:
    return (
        f"failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long "
        f"({limit} characters is the max, {len(name)} characters requested)"
    )


def devices_unavailable(resource: str, *, requested: int, available: int) -> str:
    return (
        f"Allocate failed due to requested number of devices unavailable for {resource}. "
        f"Requested: {requested}, Available: {available}, which is unexpected"
    )


NO_FREE_IDS = "no range of user ids is free for the pod"
NO_FREE_ADDRESS = "the node has no free pod address"
NO_FREE_ADDRESS_HINT = "delete pods, or give the node a larger pod CIDR"


def id_too_large(number: int) -> str:
    return f"user or group {number} is not among the 65536 ids of the pod: set hostUsers to true"


def port_replaced(port: str, replacement: int) -> str:
    return (
        f"Port {port} is in use, and pods have no network of their own on this machine: "
        f"the pods of this job use port {replacement} instead"
    )


# --- streams ---------------------------------------------------------------------------------------------


def no_previous_container(container: str, pod: str) -> str:
    return f'previous terminated container "{container}" in pod "{pod}" not found'


def logs_unavailable(container: str, pod: str, reason: str) -> str:
    """`reason` is that of the container's waiting state."""
    state = "trying and failing to pull image" if "ImagePull" in reason else f"waiting to start: {reason}"
    return f'container "{container}" in pod "{pod}" is {state}'


def pod_not_running(pod: str) -> str:
    return f"pod {pod} is not running"


def port_forward_failed(port: int, uid: str, error: str) -> str:
    return (
        f"error forwarding port {port} to pod {uid}, uid : "
        f"failed to connect to localhost:{port} inside the pod: connect: {error}"
    )


def exec_failed(error: str) -> str:
    return f"error executing command in container: {error}"


def container_not_running(container: str) -> str:
    return f'container "{container}" is not running'


def attach_failed(error: str) -> str:
    return f"unable to attach: {error}"
