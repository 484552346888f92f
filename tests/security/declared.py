"""Where a plane's verdict is not that of the recorded node, and why. Everything else must be equal."""

from __future__ import annotations

from tests.security.comparison import Difference

_POWERFUL = ("all-capabilities", "privileged", "sys-admin")

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        ("namespace.of:user", "namespace.of:cgroup", "namespace.of:uts", "namespace.enter_own:*"),
        "a pod has a user namespace of its own, and cgroup and UTS namespaces where containerd shares the machine's",
    ),
    Difference(
        ("device.mknod:*", "device.root_disk_by_number"),
        "root of a user namespace makes no device files, not even those that a container may open",
    ),
    Difference(
        ("cgroup.write:*", "cgroup.new_group", "cgroup.other_groups_are_visible"),
        "no cgroup is mounted in a pod, where containerd mounts the container's own, read-only",
    ),
    Difference(("sysfs.read_only",), "no mount below /sys is writable; containerd has a tmpfs with cgroups there"),
    Difference(
        (
            "capability.*", "cgroup.*", "device.*", "mount.*", "namespace.*", "network.*", "proc.*", "process.*",
            "syscalls.*", "sweep.*", "sysfs.*",
        ),
        "these capabilities act in the pod's user namespace only, not on the machine",
        _POWERFUL,
    ),
    Difference(("network.forced_buffer",), "takes CAP_NET_ADMIN of the machine", ("net-admin",)),
    Difference(
        ("network.*", "syscalls.socket:*"),
        "the pod's capabilities do not reach the machine's network, which does not lead to the cluster's services",
        ("host-network",),
    ),
    Difference(
        ("process.*", "proc.*"), "the pod's capabilities do not reach the processes of the machine", ("host-pid",)
    ),
    Difference(("ipc.*", "device.*"), "the pod's capabilities do not reach the IPC of the machine", ("host-ipc",)),
    Difference(("proc.oom_score_lowered",), "takes CAP_SYS_RESOURCE of the machine, which is not the pod's"),
    Difference(
        ("device.entries", "device.open:dri", "device.open:infiniband"),
        "devices that this machine has; a privileged container gets them on both",
        ("privileged",),
        may_be_laxer=True,
    ),
    Difference(
        ("proc.sysctl:user/*",),
        "the limits are those of the pod's own user namespace",
        ("privileged",),
        may_be_laxer=True,
    ),
    Difference(
        ("proc.read:*", "proc.sysctl:*", "proc.trigger:*", "ipc.key_of_another_pod"),
        "root of a pod with ids of its own does not own these files, and is another user than root of another pod",
    ),
    Difference(("capability.groups",), "the primary group is not repeated among the supplementary ones"),
    Difference(("syscalls.io_uring_setup", "syscalls.socket:vsock"), "the profile of containerd 2 refuses them"),
    Difference(
        ("syscalls.listmount", "syscalls.statmount", "syscalls.lsm_list_modules"),
        "EPERM, where a runtime that does not know the call answers ENOSYS",
    ),
    Difference(
        (
            "mount.handle_of_a_file", "process.child:memory", "process.first:memory", "syscalls.cachestat",
            "sweep.every_number",
        ),
        "the profile of containerd 2 allows them: they reach nothing but the container's own files and processes",
        may_be_laxer=True,
    ),
    Difference(
        ("syscalls.socket:icmp", "network.low_port"),
        "containerd 2 lets every user of a pod ping and bind low ports, in the pod's own network",
        may_be_laxer=True,
    ),
    Difference(
        ("mount.remount:/usr",),
        "in a mapped image /usr is a mount; a remount leaves it an overlay without a writable layer",
        _POWERFUL,
        may_be_laxer=True,
    ),
)  # fmt: skip

# On a plane of an ordinary user, besides: that user may do it without a pod.
ORDINARY_USER: tuple[Difference, ...] = (
    Difference(
        ("process.of_the_machine:affinity", "process.of_the_machine:priority"),
        "every pod has the identity of the plane's user, and with hostPID it sees that user's processes",
        ("host-pid",),
        may_be_laxer=True,
    ),
    Difference(
        ("mount.read_only_root",),
        "runAsUser changes the number, not the identity: the root directory is the container's own, as for root",
        ("restricted", "non-root", "no-escalation"),
        may_be_laxer=True,
    ),
)

# Between two runs on the same real node.
UNSTABLE: tuple[Difference, ...] = (
    Difference(
        ("proc.root_of_the_machine_through_a_process",),
        "depends on which processes the machine has: those without capabilities can be entered",
        ("host-pid",),
    ),
)

# Hostile pod specs.
POD_DIFFERENCES = {
    "unknown capability": "containerd ignores it; a pod that asks for what does not exist is refused here",
    "working directory is *": "a link below /proc is followed by its text, within the container, and leads nowhere",
}
