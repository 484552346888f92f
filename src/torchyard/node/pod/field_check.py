"""The fields of a pod that this node does not honour: refused before its sandbox is used, or named in events."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.api.pod.field_support import Rung
from torchyard.api.pod.fields import NO_SECCOMP_FIELDS, ORDINARY_USER_FIELDS, POD_FIELDS
from torchyard.node.runtime.seccomp import filters

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PodRecord


class FieldRefused(YardError):
    """A field asks for something that the pod must not run without."""

    code = messages.REASON_FAILED_SANDBOX


def rung_of(record: PodRecord) -> Rung:
    return "engine" if record.get("engine") else "sandbox" if record["sandboxed"] else "process"


def check_fields(pod: Object, record: PodRecord) -> list[str]:
    """Texts about fields that have no effect. Raises FieldRefused for the first field that is refused."""
    context = pod["spec"].get("securityContext") or {}
    if context.get("runAsGroup") is not None and context.get("runAsUser") is None:
        raise FieldRefused(messages.group_without_user(context["runAsGroup"]))
    ignored = []
    for field in POD_FIELDS.unsupported(pod["spec"], rung_of(record)):
        if field.support == "refused" and not _is_volume_kind(field.at):  # the mounter refuses those
            raise FieldRefused(str(field))
        if field.support == "ignored":
            ignored.append(str(field))
    if os.geteuid() != 0:
        ignored += [str(field) for field in ORDINARY_USER_FIELDS.unsupported(pod["spec"], rung_of(record))]
    if not filters.is_supported():
        ignored += [str(field) for field in NO_SECCOMP_FIELDS.unsupported(pod["spec"], rung_of(record))]
    return ignored


_is_volume_kind = re.compile(r"spec\.volumes\[\d+\]\.\w+").fullmatch
