"""The user and groups of a container: from security contexts, the image's USER, and its passwd and group files."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.images.model import Image
from torchyard.node.pod.environment import CreateContainerConfigError
from torchyard.node.runtime.rootfs_steps import RootfsSource

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerUser

_MAX_FILE_BYTES = 1 << 20
_is_number = re.compile(r"[0-9]{1,10}").fullmatch


@dataclass(frozen=True, slots=True)
class Account:
    """A line of /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str


def effective(container: Object, pod: Object, field: str) -> Any:
    """A field of the container's security context, or else of the pod's."""
    own = (container.get("securityContext") or {}).get(field)
    return own if own is not None else (pod["spec"].get("securityContext") or {}).get(field)


def container_user(pod: Object, container: Object, image: Image) -> ContainerUser:
    """As the kubelet and containerd choose them; raises CreateContainerConfigError for root where it is not allowed."""
    run_as, gid = effective(container, pod, "runAsUser"), effective(container, pod, "runAsGroup")
    user, _, group = (str(run_as) if run_as is not None else image.config.user).partition(":")
    _check_non_root(pod, container, run_as, user)
    account = _find_account(image.root, user or "0")
    uid = account.uid if account else int(user or 0)
    if gid is None:
        gid = _group_id(image.root, group) if group else account.gid if account else 0
    context = pod["spec"].get("securityContext") or {}
    groups = [gid]
    if context.get("supplementalGroupsPolicy") != "Strict" and account:
        groups += _groups_of(image.root, account.name)
    groups += context.get("supplementalGroups") or ()
    if context.get("fsGroup") is not None:
        groups.append(context["fsGroup"])
    return {"uid": uid, "gid": gid, "groups": sorted(set(groups))}


def home_directory(image: Image, uid: int) -> str:
    """The home directory of a user in the image; `/` for a user that the image does not know."""
    account = _find_account(image.root, str(uid))
    return (account.home if account else "") or "/"


def _check_non_root(pod: Object, container: Object, run_as: int | None, user: str) -> None:
    if not effective(container, pod, "runAsNonRoot"):
        return
    if run_as is not None:
        policy = messages.NON_ROOT_BY_USER if run_as == 0 else ""
    elif user and not _is_number(user):
        policy = messages.non_root_by_name(user)
    else:
        policy = messages.NON_ROOT_BY_IMAGE if int(user or 0) == 0 else ""
    if policy:
        metadata = pod["metadata"]
        raise CreateContainerConfigError(
            messages.breaks_non_root(
                policy,
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                container=container["name"],
            )
        )


def _find_account(root: RootfsSource, user: str) -> Account | None:
    """A user by name or number. A name that the image does not know is an error; a number needs no entry."""
    for line in _lines(root, "passwd"):
        fields = line.split(":")
        if len(fields) >= 6 and _is_number(fields[2]) and _is_number(fields[3]) and user in (fields[0], fields[2]):
            return Account(fields[0], int(fields[2]), int(fields[3]), fields[5])
    if _is_number(user):
        return None
    raise CreateContainerConfigError(messages.unknown_user(user), code=messages.REASON_CREATE_ERROR)


def _group_id(root: RootfsSource, group: str) -> int:
    if _is_number(group):
        return int(group)
    for line in _lines(root, "group"):
        fields = line.split(":")
        if fields[0] == group and len(fields) >= 3 and _is_number(fields[2]):
            return int(fields[2])
    raise CreateContainerConfigError(messages.unknown_group(group), code=messages.REASON_CREATE_ERROR)


def _groups_of(root: RootfsSource, user: str) -> list[int]:
    """The groups that list the user as a member."""
    groups = (line.split(":") for line in _lines(root, "group"))
    return [
        int(fields[2])
        for fields in groups
        if len(fields) >= 4 and _is_number(fields[2]) and user in fields[3].split(",")
    ]


def _lines(root: RootfsSource, name: str) -> list[str]:
    """The lines of a file in the image's /etc: of the highest layer that has it, or of the machine."""
    for layer in reversed(root.layers):
        text = _read(layer, name)
        if text is not None:
            return text.splitlines()
    return _machine_lines(name) if root.machine else []


def _machine_lines(name: str) -> list[str]:
    """Read again when the file changes: every container starts with it."""
    try:
        status = Path("/etc", name).stat()
    except OSError:
        return []
    version = status.st_ino, status.st_mtime_ns, status.st_size
    known, lines = _machine_files.get(name, (None, []))
    if known != version:
        lines = (_read(Path("/"), name) or "").splitlines()
        _machine_files[name] = version, lines
    return lines


_machine_files: dict[str, tuple[tuple[int, int, int], list[str]]] = {}


def _read(root: Path, name: str) -> str | None:
    """`etc/<name>` below a root. A link is not followed: in an image it may name any file of the machine."""
    try:
        etc = os.open(root / "etc", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=etc)
    except OSError:
        return None
    finally:
        os.close(etc)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return os.read(file, _MAX_FILE_BYTES).decode(errors="replace")
    finally:
        os.close(file)
