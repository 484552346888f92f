"""Why a node cannot mount a volume: the message of the event FailedMount."""

from __future__ import annotations

from collections.abc import Iterable


def kind_unsupported(volume: str, kind: str) -> str:
    return f'volume "{volume}": this node does not support {kind} volumes'


def supported_kinds(kinds: Iterable[str]) -> str:
    return f"supported volumes are {', '.join(sorted(kinds))}"


def source_unsupported(volume: str, kinds: str) -> str:
    return f'persistentvolume "{volume}": this node does not support {kinds} volumes'


def projection_unsupported(volume: str, kind: str) -> str:
    return f'volume "{volume}": this node does not support the projection of {kind}'


def claim_not_bound(namespace: str, name: str) -> str:
    return f"PVC {namespace}/{name} is not bound"


def volume_missing(name: str) -> str:
    return f'persistentvolume "{name}" not found'


def key_missing(kind: str, key: str) -> str:
    return f"{kind.lower()} references non-existent {kind.lower()} key: {key}"


def path_missing(path: object) -> str:
    return f'path "{path}" does not exist'


def path_leaves_volume(path: str) -> str:
    return f"the path {path!r} leads out of its volume"


def not_written(volume: str, reason: str) -> str:
    return f'volume "{volume}": its files cannot be written: {reason}'


def path_holds_state(path: object) -> str:
    return f"hostPath {path} holds the node's own state"


PATH_HOLDS_STATE_HINT = "choose another directory"


def path_type_unknown(kind: str) -> str:
    return f"hostPath type {kind} is unknown"


def path_type_differs(path: object, expected: str) -> str:
    return f"hostPath type check failed: {path} is not a {expected}"


def path_not_opened(path: object, reason: str) -> str:
    return f"hostPath {path} cannot be opened: {reason}"


def sub_path_leaves_volume(sub_path: str) -> str:
    return f'failed to prepare subPath for volumeMount: "{sub_path}" leads out of its volume'


def nfs_unsupported(share: str) -> str:
    return f"NFS share {share} needs root and mount.nfs on this machine"


NFS_UNSUPPORTED_HINT = "install nfs-common and run the node as root, or mount the share yourself and use hostPath"


def nfs_failed(share: str, error: str) -> str:
    return f"mount of {share} failed: {error}"


def unmount_failed(path: object, error: str) -> str:
    return f"{path} cannot be unmounted: {error}"


def group_not_set(volume: str, error: object) -> str:
    return f'applyFSGroup failed for volume "{volume}": {error}'
