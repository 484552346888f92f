"""ControllerRevisions: the earlier pod templates of a StatefulSet or DaemonSet."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.api.workload import labels
from torchyard.api.workload.templates import same_template
from torchyard.core.workload.hashes import revision_hash, template_hash

_LONGEST_PREFIX = 223


def revision_data(owner: Object) -> Object:
    """What a revision keeps: a patch that replaces the template."""
    template = owner["spec"]["template"]
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if key != "creationTimestamp"}
    return {"spec": {"template": {**template, "metadata": metadata, "$patch": "replace"}}}


def make_revision(owner: Object, ref: GroupVersionResource, kind: str, number: int, collisions: int | None) -> Object:
    """The revision of the present template. Its labels and hash differ between the two kinds, as in upstream."""
    data = revision_data(owner)
    own = dict((owner["spec"]["template"].get("metadata") or {}).get("labels") or {})
    if kind == "StatefulSet":
        # As Go encodes it: sorted, compact, and HTML-safe.
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        for character in "<>&":
            text = text.replace(character, f"\\u{ord(character):04x}")
        hash_ = revision_hash(text.encode(), collisions)
        own[labels.REVISION_HASH] = hash_
    else:
        hash_ = template_hash(owner["spec"]["template"], collisions)
        own[labels.CONTROLLER_REVISION_HASH] = hash_
    metadata: Object = {
        "name": f"{owner['metadata']['name'][:_LONGEST_PREFIX]}-{hash_}",
        "namespace": owner["metadata"]["namespace"],
        "labels": own,
        "ownerReferences": [controller_reference(owner, ref.api_version, kind)],
    }
    if owner["metadata"].get("annotations"):
        metadata["annotations"] = dict(owner["metadata"]["annotations"])
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": data,
        "revision": number,
    }


def in_order(revisions: Iterable[Object]) -> list[Object]:
    """Sorted by number, the newest last."""
    return sorted(
        revisions, key=lambda item: (number(item), item["metadata"].get("creationTimestamp") or "", _name(item))
    )


def _name(revision: Object) -> str:
    return str(revision["metadata"]["name"])


def number(revision: Object) -> int:
    return int(revision.get("revision") or 0)


def next_number(revisions: Iterable[Object]) -> int:
    return max(map(number, revisions), default=0) + 1


def has_template_of(revision: Object, owner: Object) -> bool:
    return same_template(_template(revision), _template({"data": revision_data(owner)}))


def _template(revision: Object) -> Object:
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if key != "creationTimestamp"}
    return {**template, "metadata": metadata}


def with_template_of(owner: Object, revision: Object) -> Object:
    """The owner as it was at a revision."""
    template = {key: value for key, value in _template(revision).items() if key != "$patch"}
    return {**owner, "spec": {**owner["spec"], "template": template}}


def expired(revisions: Iterable[Object], in_use: Collection[str], limit: int) -> list[Object]:
    """The oldest revisions that nothing uses, beyond the revision history limit."""
    unused = [revision for revision in in_order(revisions) if _name(revision) not in in_use]
    return unused[: max(len(unused) - limit, 0)]
