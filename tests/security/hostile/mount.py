"""Mounts: uncover what is masked, make writable what is read-only, leave the root."""

from __future__ import annotations

import ctypes
import os
import struct

from tests.security.hostile import kernel, targets
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case, denied

POINT = b"/tmp/point"


def _point() -> None:
    os.makedirs(POINT, exist_ok=True)


KINDS = {
    "tmpfs": (b"tmpfs", None), "proc": (b"proc", None), "sysfs": (b"sysfs", None), "devpts": (b"devpts", None),
    "devtmpfs": (b"devtmpfs", None), "debugfs": (b"debugfs", None), "tracefs": (b"tracefs", None),
    "securityfs": (b"securityfs", None), "mqueue": (b"mqueue", None), "bpf": (b"bpf", None), "ramfs": (b"ramfs", None),
    "overlay": (b"overlay", b"lowerdir=/etc:/usr"), "binfmt_misc": (b"binfmt_misc", None),
    "fuse": (b"fuse", b"fd=0,rootmode=40000,user_id=0,group_id=0"), "ext4": (b"ext4", None), "nfsd": (b"nfsd", None),
    "configfs": (b"configfs", None), "pstore": (b"pstore", None), "hugetlbfs": (b"hugetlbfs", None),
}  # fmt: skip


def _mount_kind(kind: bytes, data: bytes | None) -> Verdict:
    _point()
    source = b"/dev/vda" if kind == b"ext4" else b"none"
    return attempt(kernel.mount, source, POINT, kind, 0, data)


def _mount_kind_in_user_namespace(kind: bytes, data: bytes | None) -> Verdict:
    _point()
    kernel.become_root_of_user_namespace("mnt", "pid", "net", "ipc")
    pid = os.fork()  # the new pid namespace begins with a child
    if pid == 0:
        try:
            kernel.mount(b"none", POINT, kind, 0, data)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 255)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return denied(OSError(status, "")) if status else ALLOWED


for _name, (_kind, _data) in KINDS.items():
    add(f"mount.new:{_name}", _mount_kind, _kind, _data)
for _name in ("tmpfs", "proc", "sysfs", "overlay", "fuse", "mqueue"):
    add(f"mount.new_in_user_namespace:{_name}", _mount_kind_in_user_namespace, *KINDS[_name])

# What lies below a mask or a read-only mount.
COVERED = (
    "/proc", "/proc/sys", "/proc/kcore", "/proc/timer_list", "/proc/sysrq-trigger", "/sys", "/sys/firmware", "/dev",
)  # fmt: skip


def _uncover(path: str) -> Verdict:
    return attempt(kernel.umount, path.encode())


def _uncover_in_user_namespace(path: str) -> Verdict:
    kernel.become_root_of_user_namespace("mnt")
    return attempt(kernel.umount, path.encode())


def _remount_writable(path: str) -> Verdict:
    return attempt(kernel.mount, b"none", path.encode(), None, kernel.MS_REMOUNT | kernel.MS_BIND)


def _remount_file_system(path: str) -> Verdict:
    return attempt(kernel.mount, b"none", path.encode(), None, kernel.MS_REMOUNT)


for _path in COVERED:
    add(f"mount.umount:{_path}", _uncover, _path)
    add(f"mount.umount_in_user_namespace:{_path}", _uncover_in_user_namespace, _path)
for _path in ("/", "/proc", "/proc/sys", "/sys", "/sys/fs/cgroup", "/usr", "/dev"):
    add(f"mount.remount:{_path}", _remount_writable, _path)
    add(f"mount.remount_file_system:{_path}", _remount_file_system, _path)


@case
def bind() -> Verdict:
    _point()
    return attempt(kernel.mount, b"/proc", POINT, None, kernel.MS_BIND | kernel.MS_REC)


@case
def move() -> Verdict:
    _point()
    return attempt(kernel.mount, b"/proc", POINT, None, kernel.MS_MOVE)


@case
def shared_with_the_machine() -> Verdict:
    return attempt(kernel.mount, b"none", b"/", None, kernel.MS_SHARED | kernel.MS_REC)


@case
def propagation() -> Verdict:
    """Mounts that are shared with another mount namespace: what is mounted there would appear elsewhere."""
    with open("/proc/self/mountinfo") as lines:
        return sorted(line.split()[4] for line in lines if " shared:" in line)


@case
def bind_over_a_mask_in_a_user_namespace() -> Verdict:
    kernel.become_root_of_user_namespace("mnt")
    kernel.mount(b"/dev/null", b"/proc/cpuinfo", None, kernel.MS_BIND)
    return ALLOWED


@case
def file_system_context() -> Verdict:
    """fsopen, fsconfig, fsmount: the new way to mount."""
    context = kernel.call("fsopen", b"tmpfs", 0)
    kernel.call("fsconfig", context, 6, None, None, 0)
    kernel.call("fsmount", context, 0, 0)
    return ALLOWED


@case
def detached_copy_of_the_tree() -> Verdict:
    kernel.call("open_tree", kernel.AT_FDCWD, b"/proc", kernel.CLONE_TREE | kernel.AT_RECURSIVE)
    return ALLOWED


@case
def tree_as_a_path() -> Verdict:
    """open_tree without a clone is open with O_PATH; a filter may still refuse it."""
    kernel.call("open_tree", kernel.AT_FDCWD, b"/", 0)
    return ALLOWED


@case
def attributes_changed() -> Verdict:
    """mount_setattr that clears the read-only flag of /proc/sys."""
    attributes = struct.pack("QQQQ", 0, 1, 0, 0)
    kernel.call("mount_setattr", kernel.AT_FDCWD, b"/proc/sys", 0, attributes, len(attributes))
    return ALLOWED


@case
def reconfigured() -> Verdict:
    kernel.call("fspick", kernel.AT_FDCWD, b"/proc", 0)
    return ALLOWED


@case
def moved_by_descriptor() -> Verdict:
    _point()
    kernel.call("move_mount", kernel.AT_FDCWD, b"/proc/sys", kernel.AT_FDCWD, POINT, 0)
    return ALLOWED


@case
def pivot_root() -> Verdict:
    _point()
    return attempt(kernel.call, "pivot_root", b"/", POINT)


@case
def root_left_by_chroot() -> Verdict:
    """The classic: keep a directory open, change the root below it, climb."""
    os.makedirs("/tmp/jail", exist_ok=True)
    outside = os.open("/", os.O_RDONLY)
    os.chroot("/tmp/jail")
    os.fchdir(outside)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    return ALLOWED if os.path.exists(targets.text("HOST_FILE")) else ABSENT


@case
def chroot() -> Verdict:
    return attempt(os.chroot, "/tmp")


def _handle_of_inode(inode: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("IiII", 8, 1, inode, 0) + bytes(120))


@case
def file_by_handle() -> Verdict:
    """open_by_handle_at with the handle of a root directory, from a file that lies on the machine's disk."""
    descriptor = os.open("/etc/hosts", os.O_RDONLY)
    kernel.call("open_by_handle_at", descriptor, _handle_of_inode(2), os.O_RDONLY)
    return ALLOWED


@case
def file_by_handle_in_a_user_namespace() -> Verdict:
    kernel.become_root_of_user_namespace("mnt")
    return file_by_handle()


@case
def handle_of_a_file() -> Verdict:
    buffer = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount_id = ctypes.c_int()
    kernel.call("name_to_handle_at", kernel.AT_FDCWD, b"/etc/hosts", buffer, ctypes.byref(mount_id), 0)
    return ALLOWED


@case
def quota_of_a_disk() -> Verdict:
    return attempt(kernel.call, "quotactl", 0x800007 << 8, b"/dev/vda", 0, ctypes.create_string_buffer(512))


@case
def hidden_old_root() -> Verdict:
    """Nothing of the machine's root is left in the mount table."""
    with open("/proc/self/mountinfo") as lines:
        points = [line.split()[4] for line in lines]
    return sorted(point for point in points if "old" in point or "machine" in point)


@case
def read_only_root() -> Verdict:
    def write() -> None:
        with open("/escape-written", "w") as file:
            file.write("x")
        os.unlink("/escape-written")

    return attempt(write)


def _write_into(path: str) -> Verdict:
    """Create a file in a directory, or open a file for writing."""
    if os.path.isdir(path):
        name = f"{path}/escape-{os.getpid()}"
        verdict = attempt(lambda: os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_EXCL)))
        if verdict == ALLOWED:
            os.unlink(name)
        return verdict
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY)))


for _path in ("/escape", "/var/run/secrets/kubernetes.io/serviceaccount", "/escape/secret"):
    add(f"mount.write:{_path}", _write_into, _path)


@case
def file_of_the_machine() -> Verdict:
    return ALLOWED if os.path.exists(targets.text("HOST_FILE")) else ABSENT


@case
def state_of_the_runtime() -> Verdict:
    """The directory with the runtime's own state, sockets and keys."""
    return ALLOWED if os.path.exists(targets.text("RUNTIME_STATE")) else ABSENT


@case
def system_directories() -> Verdict:
    """Writable mounts among the directories of the machine's programs, in the mapped image; submounts count too."""
    writable = []
    with open("/proc/self/mountinfo") as lines:
        for line in lines:
            fields = line.split()
            if fields[4].startswith(("/usr", "/opt", "/lib", "/bin", "/sbin")) and "ro" not in fields[5].split(","):
                writable.append(fields[4])
    return writable
