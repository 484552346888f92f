"""The table of pod fields: what each rung of the node does with them.

Every field of the PodSpec of Kubernetes 1.34 has a row, of its own or of a parent. `docs/pods.md` shows this table.
"""

from __future__ import annotations

from typing import Any

from torchyard.api.pod.field_support import UNSET, FieldSupport, SearchedSpec, Support, SupportTable

_C = "containers[]"
_NO_REGISTRY = "images are not pulled; they are built or loaded on this node"
_NO_SELINUX = "no SELinux labels are set"
_NO_WINDOWS = "this is a Linux node"
_NO_DEVICE_CLAIMS = "devices are not allocated by claims; request nvidia.com/gpu"
_NO_ROOT_OF_ITS_OWN = "a plain process has the root directory of the machine"
_NO_NAMESPACES = "a plain process has no namespaces of its own"
_GATE = "Kubernetes 1.34 disables it by default"
_OLD_VOLUMES = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "gitRepo", "glusterfs", "iscsi", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd",
    "scaleIO", "storageos", "vsphereVolume",
)  # fmt: skip


def _everywhere(path: str, support: Support, note: str, **more: Any) -> FieldSupport:
    return FieldSupport(path, support, support, support, note, **more)


def _other_port(host_port: Any, port: Any, _: SearchedSpec) -> bool:
    return bool(host_port != port.get("containerPort"))


def _lacks_mount(mount: Any, _: Any, pod: SearchedSpec) -> bool:
    """Whether a plain process lacks the mount: not a directory at its own path, nor the token that admission adds."""
    own_path = pod.host_paths.get(mount.get("name"))
    return mount.get("mountPath") not in (own_path, "/var/run/secrets/kubernetes.io/serviceaccount")


def _is_huge_pages(medium: Any, _: Any, __: SearchedSpec) -> bool:
    return str(medium).startswith("HugePages")


_SCHEDULING = [
    FieldSupport("nodeName"),
    FieldSupport("nodeSelector{}"),
    FieldSupport("schedulerName", note="a pod with another name waits for that scheduler"),
    FieldSupport("schedulingGates[].**"),
    FieldSupport("tolerations[].**"),
    FieldSupport("affinity.nodeAffinity.**"),
]
for _kind in ("affinity.podAffinity", "affinity.podAntiAffinity"):
    _preferred = f"{_kind}.preferredDuringSchedulingIgnoredDuringExecution[].**"
    _selector = f"{_kind}.requiredDuringSchedulingIgnoredDuringExecution[].namespaceSelector.**"
    _SCHEDULING += [
        FieldSupport(f"{_kind}.**"),
        _everywhere(_preferred, "ignored", "the scheduler does not score affinity between pods"),
        _everywhere(_selector, "ignored", "only {} is evaluated; list the namespaces in `namespaces`"),
    ]
_SCHEDULING += [
    _everywhere(
        "topologySpreadConstraints[].**", "ignored", "the scheduler does not spread pods over topology domains"
    ),
    FieldSupport("priority", note="pods of higher priority are scheduled first; none is preempted"),
    FieldSupport("priorityClassName"),
    FieldSupport("preemptionPolicy", note="no pod is preempted"),
    FieldSupport("overhead{}"),
    FieldSupport("readinessGates[].**"),
    _everywhere("resourceClaims[].**", "refused", _NO_DEVICE_CLAIMS),
    _everywhere("resources.claims[].**", "refused", _NO_DEVICE_CLAIMS),
    FieldSupport("resources.requests{}"),
    FieldSupport(
        "resources.limits{}", "ignored", "yes", "yes", "containers of the engine are limited by their own limits only"
    ),
]

_POD = [
    FieldSupport("activeDeadlineSeconds"),
    FieldSupport("restartPolicy"),
    FieldSupport("terminationGracePeriodSeconds"),
    FieldSupport("serviceAccountName"),
    FieldSupport("serviceAccount", note="the older name of serviceAccountName"),
    FieldSupport("automountServiceAccountToken"),
    FieldSupport("enableServiceLinks"),
    _everywhere("imagePullSecrets[].**", "ignored", _NO_REGISTRY),
    _everywhere("os.name", "refused", _NO_WINDOWS, values=("windows",)),
    FieldSupport("os.name"),
    FieldSupport("runtimeClassName", note="the handlers runc, crun, nvidia and torchyard exist; others are refused"),
    FieldSupport("hostname", process="ignored", note=_NO_NAMESPACES),
    FieldSupport("subdomain"),
    FieldSupport("setHostnameAsFQDN", process="ignored", note=_NO_NAMESPACES),
    _everywhere("hostnameOverride", "dropped", _GATE),
    FieldSupport("dnsPolicy", process="ignored", note=_NO_ROOT_OF_ITS_OWN, values=("None",)),
    FieldSupport("dnsPolicy"),
    FieldSupport("dnsConfig.**", process="ignored", note=_NO_ROOT_OF_ITS_OWN),
    FieldSupport("hostAliases[].**", process="ignored", note=_NO_ROOT_OF_ITS_OWN),
    FieldSupport("hostNetwork", note="containers of the engine and plain processes always use the machine's network"),
    FieldSupport("hostPID", note="plain processes always see the machine's processes"),
    FieldSupport("hostIPC", note="plain processes always use the machine's IPC objects"),
    _everywhere(
        "hostUsers",
        "ignored",
        "the node decides: ids are shifted where the pod and its mounts allow it",
        unset=(None, True),
    ),
    FieldSupport(
        "shareProcessNamespace",
        "ignored",
        "ignored",
        "yes",
        "each container has processes of its own; plain processes always see those of the machine",
    ),
]

_POD_SECURITY = [
    FieldSupport("securityContext.runAsUser", note="for an ordinary user it changes the uid that is seen, not rights"),
    FieldSupport("securityContext.runAsGroup"),
    FieldSupport("securityContext.runAsNonRoot"),
    FieldSupport("securityContext.supplementalGroups[]", note="ignored on a node of an ordinary user"),
    FieldSupport("securityContext.supplementalGroupsPolicy"),
    FieldSupport(
        "securityContext.fsGroup",
        process="ignored",
        note="volumes are not mounted for a plain process; ignored on a node of an ordinary user too",
    ),
    FieldSupport("securityContext.fsGroupChangePolicy"),
    FieldSupport(
        "securityContext.sysctls[].**",
        "refused",
        "yes",
        "refused",
        "sysctls need namespaces of the pod's own; unsafe ones are refused as SysctlForbidden",
    ),
]
for _context in ("securityContext", f"{_C}.securityContext"):
    _POD_SECURITY += [
        FieldSupport(
            f"{_context}.seccompProfile.type",
            "refused",
            "yes",
            "refused",
            "profiles are files below `node/seccomp` in the state directory; only the sandbox loads them",
            values=("Localhost",),
        ),
        FieldSupport(
            f"{_context}.seccompProfile.type",
            process="ignored",
            note="a plain process runs without a seccomp filter",
            values=("RuntimeDefault",),
        ),
        FieldSupport(f"{_context}.seccompProfile.type"),
        FieldSupport(f"{_context}.seccompProfile.localhostProfile", note="see type"),
        _everywhere(
            f"{_context}.appArmorProfile.type",
            "refused",
            "AppArmor profiles cannot be enforced",
            values=("RuntimeDefault", "Localhost"),
        ),
        FieldSupport(f"{_context}.appArmorProfile.type"),
        FieldSupport(f"{_context}.appArmorProfile.localhostProfile", note="see type"),
        _everywhere(f"{_context}.seLinuxOptions.**", "ignored", _NO_SELINUX),
        _everywhere(f"{_context}.windowsOptions.**", "ignored", _NO_WINDOWS),
    ]
_POD_SECURITY += [FieldSupport("securityContext.seLinuxChangePolicy", note="see seLinuxOptions")]

_CONTAINER_SECURITY = [
    FieldSupport(f"{_C}.securityContext.runAsUser"),
    FieldSupport(f"{_C}.securityContext.runAsGroup"),
    FieldSupport(f"{_C}.securityContext.runAsNonRoot"),
    FieldSupport(f"{_C}.securityContext.privileged", note="a plain process has the rights of the node's own user"),
    FieldSupport(
        f"{_C}.securityContext.capabilities.**",
        process="ignored",
        note="a plain process has the rights of the node's own user",
    ),
    FieldSupport(
        f"{_C}.securityContext.allowPrivilegeEscalation",
        process="ignored",
        note="a plain process has the rights of the node's own user",
        unset=(None, True),
    ),
    FieldSupport(f"{_C}.securityContext.readOnlyRootFilesystem", process="ignored", note=_NO_ROOT_OF_ITS_OWN),
    FieldSupport(
        f"{_C}.securityContext.procMount",
        "ignored",
        "ignored",
        "yes",
        "/proc stays masked",
        values=("Unmasked",),
    ),
    FieldSupport(f"{_C}.securityContext.procMount"),
]

_CONTAINER = [
    FieldSupport(f"{_C}.name"),
    FieldSupport(f"{_C}.image"),
    FieldSupport(f"{_C}.imagePullPolicy", note=_NO_REGISTRY),
    FieldSupport(f"{_C}.command[]"),
    FieldSupport(f"{_C}.args[]"),
    FieldSupport(f"{_C}.workingDir"),
    FieldSupport(f"{_C}.env[].**"),
    _everywhere(f"{_C}.env[].valueFrom.fileKeyRef.**", "dropped", _GATE),
    FieldSupport(f"{_C}.envFrom[].**"),
    FieldSupport(f"{_C}.stdin"),
    FieldSupport(f"{_C}.stdinOnce"),
    FieldSupport(f"{_C}.tty"),
    FieldSupport(f"{_C}.terminationMessagePath", note="a plain process has no such file"),
    FieldSupport(f"{_C}.terminationMessagePolicy"),
    FieldSupport(f"{_C}.lifecycle.postStart.**"),
    FieldSupport(f"{_C}.lifecycle.preStop.**"),
    _everywhere(f"{_C}.lifecycle.stopSignal", "dropped", _GATE),
    FieldSupport(f"{_C}.restartPolicy", note="of init containers"),
    _everywhere(f"{_C}.restartPolicyRules[].**", "dropped", _GATE),
    FieldSupport(f"{_C}.ports[].name"),
    FieldSupport(f"{_C}.ports[].containerPort"),
    FieldSupport(f"{_C}.ports[].protocol"),
    FieldSupport(
        f"{_C}.ports[].hostPort",
        "ignored",
        "yes",
        "ignored",
        "the pod uses the machine's network: hostPort can only be containerPort",
        applies=_other_port,
    ),
    FieldSupport(
        f"{_C}.ports[].hostPort",
        note="on loopback and --node-port-addresses, unless hostIP names an address",
    ),
    FieldSupport(f"{_C}.ports[].hostIP", "ignored", "yes", "ignored", "see hostPort"),
    FieldSupport(f"{_C}.resizePolicy[].resourceName"),
    _everywhere(
        f"{_C}.resizePolicy[].restartPolicy",
        "ignored",
        "a resize changes the limits of the running container; those that it did not have apply when it restarts",
        values=("RestartContainer",),
    ),
    FieldSupport(f"{_C}.resizePolicy[].restartPolicy"),
    FieldSupport(f"{_C}.resources.limits{{}}", note="see Limits and devices"),
    FieldSupport(f"{_C}.resources.requests{{}}", note="the scheduler counts them"),
    _everywhere(f"{_C}.resources.claims[].**", "refused", _NO_DEVICE_CLAIMS),
    FieldSupport(
        "ephemeralContainers[].targetContainerName",
        "ignored",
        "ignored",
        "yes",
        "each container has processes of its own; plain processes always see those of the machine",
    ),
]
for _probe in ("startupProbe", "readinessProbe", "livenessProbe"):
    _CONTAINER += [
        FieldSupport(f"{_C}.{_probe}.**"),
    ]
_CONTAINER += [
    FieldSupport(
        f"{_C}.volumeMounts[]",
        process="ignored",
        note="a plain process sees the machine's files; only a hostPath at its own path is there",
        applies=_lacks_mount,
    ),
    FieldSupport(f"{_C}.volumeMounts[].name"),
    FieldSupport(f"{_C}.volumeMounts[].mountPath"),
    FieldSupport(f"{_C}.volumeMounts[].readOnly", process="ignored", note=_NO_ROOT_OF_ITS_OWN),
    FieldSupport(f"{_C}.volumeMounts[].subPath"),
    FieldSupport(f"{_C}.volumeMounts[].subPathExpr"),
    FieldSupport(f"{_C}.volumeMounts[].recursiveReadOnly", note="a read-only mount is recursively read-only"),
    _everywhere(
        f"{_C}.volumeMounts[].mountPropagation",
        "ignored",
        "mounts are not propagated between containers and the machine",
        unset=(*UNSET, "None"),
    ),
    _everywhere(f"{_C}.volumeDevices[].**", "refused", "volumes are directories, not block devices"),
]

_VOLUMES = [
    FieldSupport("volumes[].name"),
    FieldSupport("volumes[].configMap.**"),
    FieldSupport("volumes[].secret.**"),
    FieldSupport("volumes[].downwardAPI.**"),
    FieldSupport("volumes[].projected.**"),
    _everywhere("volumes[].projected.sources[].clusterTrustBundle.**", "dropped", _GATE),
    _everywhere("volumes[].projected.sources[].podCertificate.**", "dropped", _GATE),
    FieldSupport("volumes[].emptyDir.sizeLimit", note="a pod that exceeds it is evicted"),
    _everywhere(
        "volumes[].emptyDir.medium",
        "refused",
        "this node has no huge pages; use Memory or the default",
        applies=_is_huge_pages,
    ),
    FieldSupport(
        "volumes[].emptyDir.medium",
        "ignored",
        "yes",
        "ignored",
        "the volume is a directory on disk",
        values=("Memory",),
    ),
    FieldSupport("volumes[].hostPath.**", note="paths that contain the plane's own files are refused"),
    FieldSupport("volumes[].nfs.**", note="needs root"),
    FieldSupport("volumes[].persistentVolumeClaim.**"),
    FieldSupport("volumes[].ephemeral.volumeClaimTemplate.**"),
    _everywhere("volumes[].image.**", "dropped", _GATE),
    *(
        _everywhere(f"volumes[].{_volume}.**", "refused", "this node has no driver for such volumes")
        for _volume in _OLD_VOLUMES
    ),
]

POD_FIELDS = SupportTable([*_POD, *_SCHEDULING, *_POD_SECURITY, *_CONTAINER, *_CONTAINER_SECURITY, *_VOLUMES])

# What a node that an ordinary user runs does not honour in addition.
ORDINARY_USER_FIELDS = SupportTable(
    [
        FieldSupport(
            "securityContext.fsGroup", "ignored", "ignored", "yes", "only root can give the files of volumes to a group"
        ),
        _everywhere("securityContext.supplementalGroups", "ignored", "an ordinary user has one group in containers"),
    ]
)

# What a node does not honour in addition, if it knows no filters for the system calls of its machine.
NO_SECCOMP_FIELDS = SupportTable(
    FieldSupport(
        f"{_context}.seccompProfile.type",
        sandbox="ignored",
        note="system calls cannot be filtered on this machine",
        values=("RuntimeDefault", "Localhost"),
    )
    for _context in ("securityContext", f"{_C}.securityContext")
)
