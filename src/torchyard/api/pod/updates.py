"""Validation of pod updates.

The spec of a pod is nearly immutable, and each endpoint allows specific changes: the main one images and deadlines,
`status` the node's reports, `ephemeralcontainers` debug containers, `resize` cpu and memory.
"""

from __future__ import annotations

from typing import Any

from torchyard.api import checks, field_errors, names
from torchyard.api.diff import format_diff
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.qos import quality_of_service
from torchyard.api.pod.scheduling import check_tolerations
from torchyard.api.pod.validation import APP_ARMOR, MIRROR, check_annotations, check_metadata_and_spec

_MAY_CHANGE = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMINAL = "may not be transitioned to non-terminated state"
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")


def validate_pod_update(new: Object, old: Object) -> list[FieldError]:
    """Validate an update through the main endpoint."""
    errs: list[FieldError] = []
    check_metadata_and_spec(new, errs)
    _check_annotations(new, old, errs)
    spec, before = new["spec"], old["spec"]
    if not _check_images(spec, before, errs):
        return errs
    if not _check_deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"), errs):
        return errs
    _check_added_tolerations(spec.get("tolerations") or [], before.get("tolerations") or [], errs)
    _check_removed_gates(spec.get("schedulingGates") or [], before.get("schedulingGates") or [], errs)
    if spec != before:
        _check_unchanged(spec, before, errs)
    return errs


def _check_annotations(new: Object, old: Object, errs: list[FieldError]) -> None:
    after, before = new["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    at = "metadata.annotations"
    for key, value in before.items():
        if after.get(key) != value:
            if key.startswith(APP_ARMOR):
                errs.append(field_errors.forbidden(f"{at}[{key}]", "may not remove or update AppArmor annotations"))
            elif key == MIRROR:
                errs.append(field_errors.forbidden(f"{at}[{key}]", "may not remove or update mirror pod annotation"))
    for key in after.keys() - before.keys():
        if key.startswith(APP_ARMOR):
            errs.append(field_errors.forbidden(f"{at}[{key}]", "may not add AppArmor annotations"))
        elif key == MIRROR:
            errs.append(field_errors.forbidden(f"{at}[{key}]", "may not add mirror pod annotation"))
    check_annotations(after, new["spec"], at, errs)


def _check_images(spec: Object, before: Object, errs: list[FieldError]) -> bool:
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind) or []
        if len(containers) != len(before.get(kind) or []):
            errs.append(field_errors.forbidden(f"spec.{kind}", "pod updates may not add or remove containers"))
            return False
        for index, container in enumerate(containers):
            image = container.get("image") or ""
            if not image:
                errs.append(field_errors.required(f"spec.{kind}[{index}].image"))
            if image != image.strip():
                detail = "must not have leading or trailing whitespace"
                errs.append(field_errors.invalid(f"spec.{kind}[{index}].image", image, detail))
    return True


def _check_deadline(deadline: int | None, before: int | None, errs: list[FieldError]) -> bool:
    """Allow a deadline to be set once, and then only to be shortened."""
    field = "spec.activeDeadlineSeconds"
    if deadline is None:
        if before is not None:
            detail = "must not update from a positive integer to nil value"
            errs.append(field_errors.invalid(field, None, detail))
        return True
    if not 0 <= deadline <= checks.MAX_INT32:
        errs.append(field_errors.invalid(field, deadline, checks.in_range(0, checks.MAX_INT32)))
        return False
    if before is not None and before < deadline:
        errs.append(field_errors.invalid(field, deadline, "must be less than or equal to previous value"))
        return False
    return True


def _check_added_tolerations(tolerations: list[Object], before: list[Object], errs: list[FieldError]) -> None:
    def without_seconds(toleration: Object) -> Object:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds" and value}

    current = [without_seconds(toleration) for toleration in tolerations]
    if any(without_seconds(toleration) not in current for toleration in before):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errs.append(field_errors.forbidden("spec.tolerations", detail))
    else:
        check_tolerations(tolerations, "spec.tolerations", errs)


def _check_removed_gates(gates: list[Object], before: list[Object], errs: list[FieldError]) -> None:
    known = {gate.get("name") for gate in before}
    for index, gate in enumerate(gates):
        if gate.get("name") not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            errs.append(field_errors.forbidden(f"spec.schedulingGates[{index}].name", detail))


def _check_unchanged(spec: Object, before: Object, errs: list[FieldError]) -> None:
    """Require all other fields to be unchanged."""
    munged = dict(spec)
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            pairs = zip(spec[kind], before[kind], strict=True)
            munged[kind] = [{**container, "image": was.get("image")} for container, was in pairs]
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _restore(munged, before, field)
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        _restore(munged, before, "terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        _check_gated(munged, before, errs)
    if changed := format_diff(before, munged):
        detail = f"pod updates may not change fields other than {','.join(_MAY_CHANGE)}\n{changed}"
        errs.append(field_errors.forbidden("spec", detail))


def _restore(munged: Object, before: Object, field: str) -> None:
    if before.get(field) is None:
        munged.pop(field, None)
    else:
        munged[field] = before[field]


def _check_gated(munged: Object, before: Object, errs: list[FieldError]) -> None:
    """Allow a pod with scheduling gates to narrow its node selection."""
    selector, was = munged.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in was.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errs.append(field_errors.invalid("spec.nodeSelector", selector, detail))
    _restore(munged, before, "nodeSelector")
    affinity, affinity_before = munged.get("affinity") or {}, before.get("affinity") or {}
    nodes, nodes_before = affinity.get("nodeAffinity"), affinity_before.get("nodeAffinity")
    if nodes == nodes_before:
        return
    _check_narrower(nodes or {}, nodes_before or {}, errs)
    restored = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
    if nodes_before is not None:
        restored["nodeAffinity"] = nodes_before
    if restored or before.get("affinity") is not None:
        munged["affinity"] = restored
    else:
        munged.pop("affinity", None)


def _check_narrower(nodes: Object, before: Object, errs: list[FieldError]) -> None:
    at = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    terms = (nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    old_terms = (before.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if old_terms and len(terms) != len(old_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errs.append(field_errors.invalid(at, terms, detail))
        return
    for index, (term, old_term) in enumerate(zip(terms, old_terms, strict=False)):
        if not _has_only_additions(term, old_term):
            detail = "only additions are allowed (no mutations or deletions)"
            errs.append(field_errors.invalid(f"{at}[{index}]", term, detail))


def _has_only_additions(term: Object, before: Object) -> bool:
    if not before.get("matchExpressions") and not before.get("matchFields"):
        return not term.get("matchExpressions") and not term.get("matchFields")
    return all(
        (term.get(name) or [])[: len(before.get(name) or [])] == (before.get(name) or [])
        for name in ("matchExpressions", "matchFields")
    )


def validate_pod_status(new: Object, old: Object) -> list[FieldError]:
    """Validate an update through the status subresource."""
    errs: list[FieldError] = []
    _check_annotations(new, old, errs)
    status, before = new.get("status") or {}, old.get("status") or {}
    for index, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type") or ""
        if kind not in _SYSTEM_CONDITIONS:
            checks.report_problems(names.qualified_name_problems(kind), f"status.conditions[{index}].Type", kind, errs)
    node = status.get("nominatedNodeName")
    if node and node != before.get("nominatedNodeName"):
        checks.report_problems(names.subdomain_problems(node), "status.nominatedNodeName", node, errs)
    checks.immutable(status.get("qosClass") or "", before.get("qosClass") or "", "status.qosClass", errs)
    policy = old["spec"].get("restartPolicy") or "Always"
    sidecars = {
        container.get("name")
        for container in old["spec"].get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    _check_states(status, before, "containerStatuses", errs, policy=policy)
    _check_states(status, before, "initContainerStatuses", errs, policy=policy, sidecars=sidecars)
    _check_states(status, before, "ephemeralContainerStatuses", errs, policy="Never")
    _check_addresses(status.get("podIPs") or [], "status.podIPs", errs)
    host_ips = status.get("hostIPs") or []
    if host_ips and status.get("hostIP") != host_ips[0].get("ip"):
        errs.append(field_errors.invalid("status.hostIPs[0].ip", host_ips[0].get("ip"), "must be equal to `hostIP`"))
    _check_addresses(host_ips, "status.hostIPs", errs)
    return errs


def _check_states(
    status: Object,
    before: Object,
    kind: str,
    errs: list[FieldError],
    *,
    policy: str,
    sidecars: set[Any] | frozenset[Any] = frozenset(),
) -> None:
    """Require terminated containers to stay terminated, unless the pod restarts its containers."""
    if policy == "Always":
        return
    states = {container.get("name"): container.get("state") or {} for container in status.get(kind) or ()}
    for index, old in enumerate(before.get(kind) or ()):
        ended = (old.get("state") or {}).get("terminated")
        name = old.get("name")
        if ended is None or name in sidecars or (ended.get("exitCode") and policy == "OnFailure"):
            continue
        if name in states and states[name].get("terminated") is None:
            errs.append(field_errors.forbidden(f"status.{kind}[{index}].state", _TERMINAL))


def _check_addresses(addresses: list[Object], at: str, errs: list[FieldError]) -> None:
    texts = [address.get("ip") or "" for address in addresses]
    valid = [checks.ip(text, f"{at}[{index}]", errs) for index, text in enumerate(texts)]
    if len(texts) < 2:
        return
    families = {getattr(checks.parse_ip(text), "version", 0) for text in texts}
    if all(valid) and (len(texts) > 2 or len(families) < 2):
        detail = "may specify no more than one IP for each IP family"
        errs.append(field_errors.invalid(at, addresses, detail))
    for index, is_repeated in enumerate(checks.repetitions(texts)):
        if is_repeated:
            errs.append(field_errors.duplicate(f"{at}[{index}]", addresses[index]))


def validate_ephemeral_containers(new: Object, old: Object) -> list[FieldError]:
    """Validate an update through the `ephemeralcontainers` subresource: containers may only be added."""
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [field_errors.forbidden("[]", "static pods do not support ephemeral containers")]
    errs: list[FieldError] = []
    check_metadata_and_spec(new, errs)
    _check_annotations(new, old, errs)
    after = {container.get("name"): container for container in new["spec"].get("ephemeralContainers") or ()}
    for container in old["spec"].get("ephemeralContainers") or ():
        name = container.get("name")
        if name not in after:
            detail = f'existing ephemeral containers "{name}" may not be removed\n'
            errs.append(field_errors.forbidden("spec.ephemeralContainers", detail))
        elif changed := format_diff(container, after[name]):
            detail = f'existing ephemeral containers "{name}" may not be changed\n{changed}'
            errs.append(field_errors.forbidden("spec.ephemeralContainers", detail))
    return errs


def apply_resize(pod: Object, sent: Object) -> Object:
    """Return the pod with the resources of the sent containers; all other changes in `sent` are ignored.

    Other containers than those of the pod are kept as sent, for `validate_resize` to refuse.
    """
    spec, sent_spec = dict(pod["spec"]), sent.get("spec") or {}
    for kind in ("containers", "initContainers"):
        own, other = spec.get(kind) or [], sent_spec.get(kind) or []
        if _names(own) != _names(other):
            spec[kind] = other
        elif own:
            spec[kind] = [
                _with_sent_resources(container, resized) for container, resized in zip(own, other, strict=True)
            ]
    return {**pod, "spec": spec}


def _names(containers: list[Object]) -> list[str]:
    return [container.get("name") or "" for container in containers]


def _with_sent_resources(container: Object, resized: Object) -> Object:
    changed = {name: resized[name] for name in ("resources", "resizePolicy") if resized.get(name) is not None}
    return {**container, **changed}


def validate_resize(new: Object, old: Object) -> list[FieldError]:
    """Validate an update through the `resize` subresource: cpu and memory of running containers."""
    if any((pod["spec"].get("resources") or {}).get(name) for pod in (new, old) for name in ("requests", "limits")):
        return [field_errors.forbidden("[]", "pods with pod-level resources cannot be resized")]
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [field_errors.forbidden("[]", "static pods cannot be resized")]
    errs: list[FieldError] = []
    check_metadata_and_spec(new, errs)
    if quality_of_service(new) != ((old.get("status") or {}).get("qosClass") or quality_of_service(old)):
        detail = "Pod QOS Class may not change as a result of resizing"
        errs.append(field_errors.invalid("spec", (new.get("status") or {}).get("qosClass"), detail))
    spec, before = new["spec"], old["spec"]
    if other_containers := _check_same_containers(spec, before):
        return [*errs, *other_containers]
    munged = dict(spec)
    for kind in ("initContainers", "containers"):
        pairs = list(zip(spec.get(kind) or (), before.get(kind) or (), strict=True))
        for index, (container, was) in enumerate(pairs):
            if kind == "containers" or was.get("restartPolicy") == "Always":
                _check_resized(container, was, f"spec.{kind}[{index}].resources", errs)
        if pairs:
            munged[kind] = [_with_old_resources(container, was) for container, was in pairs]
    if not errs and format_diff(before, munged):
        errs.append(field_errors.forbidden("spec", "only cpu and memory resources are mutable"))
    return errs


def _check_same_containers(spec: Object, before: Object) -> list[FieldError]:
    """Require the same containers in the same order: the other checks compare them pairwise."""
    errs: list[FieldError] = []
    for kind in ("containers", "initContainers"):
        after, was = _names(spec.get(kind) or []), _names(before.get(kind) or [])
        if len(after) != len(was):
            errs.append(field_errors.forbidden(f"spec.{kind}", f"{kind} may not be added or removed on resize"))
            continue
        detail = f"{kind} may not be renamed or reordered on resize"
        errs += [
            field_errors.forbidden(f"spec.{kind}[{index}].name", detail)
            for index, name in enumerate(after)
            if name != was[index]
        ]
    return errs


def _check_resized(container: Object, before: Object, at: str, errs: list[FieldError]) -> None:
    resources, was = container.get("resources") or {}, before.get("resources") or {}
    for kind in ("requests", "limits"):
        if (was.get(kind) or {}).keys() - (resources.get(kind) or {}).keys():
            errs.append(field_errors.forbidden(f"{at}.{kind}", f"resource {kind} cannot be removed"))


def _with_old_resources(container: Object, before: Object) -> Object:
    """Return the container with its old cpu and memory, to find other changes."""
    restored: dict[str, Any] = {}
    for kind in ("limits", "requests"):
        now = dict((container.get("resources") or {}).get(kind) or {})
        was = (before.get("resources") or {}).get(kind)
        if was is None:
            continue
        for name in ("cpu", "memory"):
            now.pop(name, None)
            if name in was:
                now[name] = was[name]
        restored[kind] = now
    if claims := (container.get("resources") or {}).get("claims"):
        restored["claims"] = claims
    return {**container, "resources": restored, "resizePolicy": before.get("resizePolicy")}
