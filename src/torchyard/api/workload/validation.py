"""Validation of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers on create and update."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api import checks, field_errors, names, selectors
from torchyard.api.diff import semantically_equal
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.validation import check_template_metadata, validate_template
from torchyard.api.schema import builtin
from torchyard.api.volume.claims import check_claim_spec

_NO_MATCH = "`selector` does not match template `labels`"
_MAY_CHANGE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _check_selector(spec: Object, errs: list[FieldError], *, kind: str, unreadable: str) -> bool:
    """Check the required selector of a workload; return whether it can be used."""
    selector = spec.get("selector")
    if selector is None:
        errs.append(field_errors.required("spec.selector"))
        return True
    wrong = selectors.validate_object(selector, "spec.selector")
    errs += wrong
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errs.append(field_errors.invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    if wrong:
        errs.append(field_errors.invalid("spec.selector", selector, unreadable))
    return not wrong


def _check_labels(spec: Object, errs: list[FieldError]) -> None:
    """Require the template's labels to match the selector."""
    own = (spec["template"].get("metadata") or {}).get("labels")
    selector = selectors.from_object(spec.get("selector"))
    if not selector.everything and not selector.matches(own):
        value = dict(sorted(own.items())) if own else None
        errs.append(field_errors.invalid("spec.template.metadata.labels", value, _NO_MATCH))


def _check_always(spec: Object, errs: list[FieldError], *, kind: str) -> None:
    pod = spec["template"].get("spec") or {}
    if pod.get("restartPolicy") != "Always":
        field = "spec.template.spec.restartPolicy"
        errs.append(field_errors.not_supported(field, pod.get("restartPolicy"), ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        errs.append(field_errors.forbidden("spec.template.spec.activeDeadlineSeconds", detail))


def validate_deployment(deployment: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = deployment["spec"]
    checks.nonnegative(spec.get("replicas"), "spec.replicas", errs)
    if _check_selector(spec, errs, kind="deployment", unreadable="invalid label selector"):
        _check_labels(spec, errs)
        validate_template(spec["template"], "spec.template", errs)
        _check_always(spec, errs, kind="ReplicaSet")
    _check_strategy(spec.get("strategy") or {}, errs)
    checks.nonnegative_fields(spec, ("minReadySeconds", "revisionHistoryLimit"), "spec", errs)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        checks.nonnegative(deadline, "spec.progressDeadlineSeconds", errs)
        if deadline <= (spec.get("minReadySeconds") or 0):
            detail = "must be greater than minReadySeconds"
            errs.append(field_errors.invalid("spec.progressDeadlineSeconds", deadline, detail))
    return errs


def _check_strategy(strategy: Object, errs: list[FieldError]) -> None:
    kind, rolling, at = strategy.get("type"), strategy.get("rollingUpdate"), "spec.strategy"
    if kind == "Recreate":
        if rolling is not None:
            detail = "may not be specified when strategy `type` is 'Recreate'"
            errs.append(field_errors.forbidden(f"{at}.rollingUpdate", detail))
    elif kind == "RollingUpdate":
        _check_rolling(rolling or {}, f"{at}.rollingUpdate", errs)
    else:
        errs.append(field_errors.not_supported(at, strategy, ("Recreate", "RollingUpdate")))


def _check_rolling(rolling: Object, at: str, errs: list[FieldError]) -> None:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    checks.int_or_percent(unavailable, f"{at}.maxUnavailable", errs)
    checks.int_or_percent(surge, f"{at}.maxSurge", errs)
    if checks.percent_value(unavailable) == 0 and checks.percent_value(surge) == 0:
        detail = "may not be 0 when `maxSurge` is 0"
        errs.append(field_errors.invalid(f"{at}.maxUnavailable", unavailable, detail))
    checks.at_most_100_percent(unavailable, f"{at}.maxUnavailable", errs)


def validate_replica_set(replica_set: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = replica_set["spec"]
    checks.nonnegative_fields(spec, ("replicas", "minReadySeconds"), "spec", errs)
    if _check_selector(spec, errs, kind="deployment", unreadable="invalid label selector"):
        _check_labels(spec, errs)
        validate_template(spec["template"], "spec.template", errs)
        _check_always(spec, errs, kind="ReplicaSet")
    return errs


def validate_with_immutable_selector(
    validate: Callable[[Object], list[FieldError]], new: Object, old: Object
) -> list[FieldError]:
    """Validate an update of a workload whose selector is immutable."""
    errs = validate(new)
    checks.immutable(new["spec"].get("selector"), old["spec"].get("selector"), "spec.selector", errs)
    return errs


def validate_stateful_set(stateful_set: Object, *, claims: bool = True) -> list[FieldError]:
    """Validate a StatefulSet. `claims`: validate the claim templates too; as in upstream, updates only compare them."""
    errs: list[FieldError] = []
    spec = stateful_set["spec"]
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        errs.append(field_errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    _check_update_strategy(spec.get("updateStrategy") or {}, errs)
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        value = retention.get(name) or ""
        checks.optional_enum(value, ("Retain", "Delete"), f"spec.persistentVolumeClaimRetentionPolicy.{name}", errs)
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or () if claims else ()):
        check_claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec", errs)
    checks.nonnegative_fields(spec, ("replicas", "minReadySeconds"), "spec", errs)
    checks.nonnegative((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start", errs)
    if service := spec.get("serviceName"):
        checks.report_problems(names.label_problems(service), "spec.serviceName", service, errs)
    if _check_selector(spec, errs, kind="statefulset", unreadable=""):
        _check_labels(spec, errs)
        # errors of labels and annotations are reported twice, as in upstream
        check_template_metadata(spec["template"], "spec.template", errs)
        validate_template(_effective_template(spec), "spec.template", errs)
    _check_always(spec, errs, kind="StatefulSet")
    return errs


def _effective_template(spec: Object) -> Object:
    """Return the template as its pods will have it: with a volume per claim template and host names set by the
    StatefulSet.
    """
    template: Object = spec["template"]
    claims = spec.get("volumeClaimTemplates") or ()
    own = dict.fromkeys(claim.get("metadata", {}).get("name") or "" for claim in claims)
    pod = {key: value for key, value in (template.get("spec") or {}).items() if key not in ("hostname", "subdomain")}
    other_volumes = [volume for volume in pod.get("volumes") or () if volume.get("name") not in own]
    claim_volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in own]
    return {**template, "spec": {**pod, "volumes": [*claim_volumes, *other_volumes]}}


def _check_update_strategy(strategy: Object, errs: list[FieldError]) -> None:
    kind, rolling, at = strategy.get("type") or "", strategy.get("rollingUpdate"), "spec.updateStrategy"
    if kind == "OnDelete":
        if rolling is not None:
            detail = "only allowed for updateStrategy 'RollingUpdate'"
            errs.append(field_errors.invalid(f"{at}.rollingUpdate", rolling, detail))
    elif kind == "RollingUpdate":
        checks.nonnegative((rolling or {}).get("partition"), f"{at}.rollingUpdate.partition", errs)
    elif not kind:
        errs.append(field_errors.required(at))
    else:
        errs.append(field_errors.invalid(at, strategy, "must be 'RollingUpdate' or 'OnDelete'"))


def validate_stateful_set_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate_stateful_set(new, claims=False)
    spec, before = ({key: value for key, value in obj["spec"].items() if key not in _MAY_CHANGE} for obj in (new, old))
    if not semantically_equal(before, spec, builtin.definition("io.k8s.api.apps.v1.StatefulSetSpec")):
        named = ", ".join(f"'{name}'" for name in _MAY_CHANGE[:-1])
        detail = f"updates to statefulset spec for fields other than {named} and '{_MAY_CHANGE[-1]}' are forbidden"
        errs.append(field_errors.forbidden("spec", detail))
    return errs


def validate_daemon_set(daemon_set: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = daemon_set["spec"]
    selector = spec.get("selector")
    wrong = selectors.validate_object(selector, "spec.selector")
    errs += wrong
    if not wrong:
        _check_labels(spec, errs)
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errs.append(field_errors.invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
    validate_template(spec["template"], "spec.template", errs)
    _check_always(spec, errs, kind="DaemonSet")
    checks.nonnegative(spec.get("minReadySeconds"), "spec.minReadySeconds", errs)
    _check_daemon_strategy(spec.get("updateStrategy") or {}, errs)
    checks.nonnegative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit", errs)
    return errs


def _check_daemon_strategy(strategy: Object, errs: list[FieldError]) -> None:
    kind, at = strategy.get("type"), "spec.updateStrategy"
    if kind == "OnDelete":
        return
    if kind != "RollingUpdate":
        errs.append(field_errors.not_supported(at, strategy, ("RollingUpdate", "OnDelete")))
        return
    rolling = strategy.get("rollingUpdate") or {}
    where = f"{at}.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    for name, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        checks.int_or_percent(value, f"{where}.{name}", errs)
    for name, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        checks.at_most_100_percent(value, f"{where}.{name}", errs)
    if checks.percent_value(unavailable) and checks.percent_value(surge):
        errs.append(field_errors.invalid(f"{where}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not checks.percent_value(unavailable) and not checks.percent_value(surge):
        errs.append(field_errors.required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def validate_replication_controller(controller: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = controller["spec"]
    selector, template = spec.get("selector") or {}, spec.get("template")
    checks.nonnegative(spec.get("minReadySeconds"), "spec.minReadySeconds", errs)
    if not selector:
        errs.append(field_errors.required("spec.selector"))
    checks.nonnegative(spec.get("replicas"), "spec.replicas", errs)
    if template is None:
        errs.append(field_errors.required("spec.template"))
        return errs
    own = (template.get("metadata") or {}).get("labels")
    if selector and not selectors.from_map(selector).matches(own):
        value = dict(sorted(own.items())) if own else None
        errs.append(field_errors.invalid("spec.template.metadata.labels", value, _NO_MATCH))
    validate_template(template, "spec.template", errs)
    _check_always(spec, errs, kind="ReplicationController")
    return errs


def validate_revision(revision: Object) -> list[FieldError]:
    """Validate a ControllerRevision."""
    errs: list[FieldError] = []
    if revision.get("data") is None:
        errs.append(field_errors.required("data", "data is mandatory"))
    elif not isinstance(revision["data"], dict):
        errs.append(field_errors.required("data", "data must be a valid JSON object"))
    checks.nonnegative(revision.get("revision"), "revision", errs)
    return errs


def validate_revision_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate_revision(new)
    checks.immutable(new.get("data"), old.get("data"), "data", errs)
    return errs
