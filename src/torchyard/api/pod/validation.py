"""Validation of new pods and pod templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchyard.api import checks, compute_resources, field_errors, names, quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.containers import (
    PodContext,
    check_containers,
    check_ephemeral_containers,
    check_image_spaces,
    check_init_containers,
)
from torchyard.api.pod.defaults import CONTAINER_LISTS, container_total
from torchyard.api.pod.scheduling import check_affinity, check_gates, check_spread, check_tolerations
from torchyard.api.pod.security import check_host_users, check_operating_system, check_pod_security_context
from torchyard.api.pod.volumes import check_volumes

MIRROR = "kubernetes.io/config.mirror"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_is_int32 = re.compile(r"0|-?[1-9][0-9]{0,9}", re.ASCII).fullmatch
_SEARCH_DOMAIN = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_is_search_domain = re.compile(_SEARCH_DOMAIN).fullmatch


def all_containers(spec: Object) -> Iterator[tuple[str, int, Object]]:
    """Yield every container with the name of its list and its index."""
    for kind in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(kind) or ()):
            yield kind, index, container


def validate_pod(pod: Object) -> list[FieldError]:
    """Validate a new pod."""
    errs: list[FieldError] = []
    spec = pod["spec"]
    check_metadata_and_spec(pod, errs)
    if spec.get("ephemeralContainers"):
        errs.append(field_errors.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        errs.append(field_errors.forbidden("spec.nodeName", detail))
    if annotations := pod["metadata"].get("annotations"):
        _check_profiles_match(annotations, spec, "spec", errs)
    return errs


def check_metadata_and_spec(pod: Object, errs: list[FieldError]) -> None:
    """Check what must hold for a pod on create and on update."""
    meta, spec = pod["metadata"], pod["spec"]
    if annotations := meta.get("annotations"):
        check_annotations(annotations, spec, "metadata.annotations", errs)
    check_spec(spec, "spec", errs, pod_name=meta.get("name") or "", is_pod=True)
    if not spec.get("serviceAccountName"):
        _check_no_tokens(spec, errs)
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            image = container.get("image")
            if image and (image[0] <= " " or image[-1] <= " "):
                check_image_spaces(container, f"spec.{kind}[{index}]", errs)


def _check_no_tokens(spec: Object, errs: list[FieldError]) -> None:
    for index, volume in enumerate(spec.get("volumes") or ()):
        for number, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("serviceAccountToken") is not None:
                field = f"spec.volumes[{index}].projected.sources[{number}].serviceAccountToken"
                errs.append(field_errors.forbidden(field, "must not be specified when serviceAccountName is not set"))


def validate_template(template: Object, at: str, errs: list[FieldError]) -> None:
    """Validate a pod template of a workload."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = meta.get("annotations")
    check_template_metadata(template, at, errs)
    check_spec(spec, f"{at}.spec", errs)
    if annotations:
        _check_profiles_match(annotations, spec, f"{at}.spec", errs)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errs.append(field_errors.forbidden(f"{at}.spec.ephemeralContainers", detail))


def check_template_metadata(template: Object, at: str, errs: list[FieldError]) -> None:
    """Check labels and annotations of a template; the rest of its metadata is ignored."""
    meta = template.get("metadata") or {}
    annotations = meta.get("annotations")
    errs += names.validate_labels(meta.get("labels"), f"{at}.labels")
    if annotations:
        errs += names.validate_annotations(annotations, f"{at}.annotations")
        check_annotations(annotations, template.get("spec") or {}, f"{at}.annotations", errs)


def check_annotations(annotations: dict[str, str], spec: Object, at: str, errs: list[FieldError]) -> None:
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errs.append(field_errors.invalid(f"{at}[{MIRROR}]", annotations[MIRROR], detail))
    cost = annotations.get(DELETION_COST)
    if cost is not None and not (_is_int32(cost) and -(2**31) <= int(cost) < 2**31):
        errs.append(field_errors.invalid(f"{at}[{DELETION_COST}]", cost, "must be a 32bit integer"))
    for key, value in annotations.items():
        if key == _SECCOMP_POD or key.startswith(_SECCOMP_CONTAINER):
            _check_seccomp_annotation(value, f"{at}.{key}", errs)
        elif key.startswith(APP_ARMOR):
            name = key.removeprefix(APP_ARMOR)
            if name not in {container.get("name") for _, _, container in all_containers(spec)}:
                errs.append(field_errors.invalid(f"{at}[{key}]", name, "container not found"))
            if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
                errs.append(field_errors.invalid(f"{at}[{key}]", value, f'invalid AppArmor profile name: "{value}"'))


def _check_seccomp_annotation(value: str, field: str, errs: list[FieldError]) -> None:
    if value in ("runtime/default", "docker/default", "unconfined"):
        return
    if value.startswith("localhost/"):
        checks.local_descending_path(value.removeprefix("localhost/"), field, errs)
    else:
        errs.append(field_errors.invalid(field, value, "must be a valid seccomp profile"))


def _check_profiles_match(annotations: dict[str, str], spec: Object, at: str, errs: list[FieldError]) -> None:
    """Require the old annotations to agree with the fields where both are set."""
    pod_context = spec.get("securityContext") or {}
    _check_profile(annotations.get(_SECCOMP_POD), pod_context.get("seccompProfile"), f"{at}.securityContext", errs)
    for kind, index, container in all_containers(spec):
        context, name = container.get("securityContext") or {}, container.get("name")
        where = f"{at}.{kind}[{index}].securityContext"
        annotation = annotations.get(f"{_SECCOMP_CONTAINER}{name}")
        _check_profile(annotation, context.get("seccompProfile"), where, errs)
        profile = context.get("appArmorProfile") or pod_context.get("appArmorProfile")
        _check_profile(annotations.get(f"{APP_ARMOR}{name}"), profile, where, errs, word="apparmor")


def _check_profile(
    annotation: str | None, profile: Object | None, at: str, errs: list[FieldError], *, word: str = "seccomp"
) -> None:
    if annotation is None or profile is None:
        return
    kind, local = profile.get("type"), profile.get("localhostProfile")
    field = f"{at}.{'seccompProfile' if word == 'seccomp' else 'appArmorProfile'}"
    same = {
        "Unconfined": annotation == "unconfined",
        "RuntimeDefault": annotation in ("runtime/default", "docker/default"),
        "Localhost": annotation.startswith("localhost/"),
    }.get(kind or "", True)
    if not same:
        errs.append(field_errors.forbidden(f"{field}.type", f"{word} type in annotation and field must match"))
    elif kind == "Localhost" and annotation.removeprefix("localhost/") != local:
        detail = f"{word} profile in annotation and field must match"
        errs.append(field_errors.forbidden(f"{field}.localhostProfile", detail))


def check_spec(spec: Object, at: str, errs: list[FieldError], *, pod_name: str = "", is_pod: bool = False) -> None:  # noqa: C901, PLR0912 - one branch per field, as upstream's function
    """Check the spec of a pod, in upstream's order, so that the first reported error is the same."""
    get = spec.get
    grace = get("terminationGracePeriodSeconds")
    if grace is None:
        errs.append(field_errors.required(f"{at}.terminationGracePeriodSeconds"))
    volumes = get("volumes")
    known = check_volumes(volumes, pod_name, f"{at}.volumes", errs) if volumes else {}
    claims = get("resourceClaims")
    context = PodContext(
        volumes=known,
        claims=_check_resource_claims(claims, f"{at}.resourceClaims", errs) if claims else frozenset(),
        restart_policy=get("restartPolicy") or "",
        grace_period=grace,
        host_users=get("hostUsers") is not False,
    )
    containers = get("containers") or []
    check_containers(containers, context, f"{at}.containers", errs)
    if init := get("initContainers"):
        check_init_containers(init, context, f"{at}.initContainers", errs)
    if ephemeral := get("ephemeralContainers"):
        check_ephemeral_containers(ephemeral, context, f"{at}.ephemeralContainers", errs)
    if get("resources"):
        _check_pod_level(spec, f"{at}.resources", errs)
    if get("hostNetwork"):
        _check_host_network(containers, f"{at}.containers", errs, is_pod=is_pod)
    if get("restartPolicy") not in _RESTART_POLICIES:
        checks.required_enum(get("restartPolicy"), _RESTART_POLICIES, f"{at}.restartPolicy", errs)
    if get("dnsPolicy") not in _DNS_POLICIES:
        checks.required_enum(get("dnsPolicy"), _DNS_POLICIES, f"{at}.dnsPolicy", errs)
    if get("nodeSelector"):
        errs += names.validate_labels(get("nodeSelector"), f"{at}.nodeSelector")
    if get("securityContext") or get("shareProcessNamespace"):
        check_pod_security_context(spec, f"{at}.securityContext", errs)
    if affinity := get("affinity"):
        check_affinity(affinity, f"{at}.affinity", errs)
    if get("dnsConfig") is not None or get("dnsPolicy") == "None":
        _check_dns(get("dnsConfig"), get("dnsPolicy"), f"{at}.dnsConfig", errs)
    for index, gate in enumerate(get("readinessGates") or ()):
        name = gate.get("conditionType") or ""
        checks.report_problems(
            names.qualified_name_problems(name), f"{at}.readinessGates[{index}].conditionType", name, errs
        )
    if gates := get("schedulingGates"):
        check_gates(gates, f"{at}.schedulingGates", errs)
    if constraints := get("topologySpreadConstraints"):
        check_spread(constraints, f"{at}.topologySpreadConstraints", errs)
    if get("hostUsers") is False:
        check_host_users(spec, at, errs)
    _check_names(spec, at, errs)


_NAMED = (
    ("serviceAccountName", names.subdomain_problems),
    ("nodeName", names.subdomain_problems),
    ("activeDeadlineSeconds", None),
    ("hostname", names.label_problems),
    ("subdomain", names.label_problems),
    ("tolerations", None),
    ("hostAliases", None),
    ("priorityClassName", names.subdomain_problems),
    ("runtimeClassName", names.subdomain_problems),
    ("preemptionPolicy", None),
    ("overhead", None),
    ("os", None),
)


def _check_names(spec: Object, at: str, errs: list[FieldError]) -> None:
    """Check fields that do not depend on other fields."""
    for name, problems in _NAMED:
        value = spec.get(name)
        if value is None or (
            not value and name not in ("activeDeadlineSeconds", "runtimeClassName", "preemptionPolicy")
        ):
            continue
        if problems is not None:
            if messages := problems(value):
                checks.report_problems(messages, f"{at}.{name}", value, errs)
        elif name == "activeDeadlineSeconds":
            if not 1 <= value <= checks.MAX_INT32:
                errs.append(field_errors.invalid(f"{at}.{name}", value, checks.in_range(1, checks.MAX_INT32)))
        elif name == "tolerations":
            check_tolerations(value, f"{at}.tolerations", errs)
        elif name == "hostAliases":
            _check_host_aliases(value, f"{at}.hostAliases", errs)
        elif name == "preemptionPolicy":
            checks.required_enum(value, ("PreemptLowerPriority", "Never"), f"{at}.preemptionPolicy", errs)
        elif name == "overhead":
            compute_resources.check_overhead(value, f"{at}.overhead", errs)
        else:
            check_operating_system(spec, at, errs)


def _check_host_aliases(aliases: list[Object], at: str, errs: list[FieldError]) -> None:
    for index, alias in enumerate(aliases):
        checks.ip(alias.get("ip") or "", f"{at}[{index}].ip", errs)
        for number, hostname in enumerate(alias.get("hostnames") or ()):
            checks.report_problems(
                names.subdomain_problems(hostname), f"{at}[{index}].hostnames[{number}]", hostname, errs
            )


def _check_resource_claims(claims: list[Object], at: str, errs: list[FieldError]) -> frozenset[str]:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        field, name = f"{at}[{index}]", claim.get("name") or ""
        if not name:
            errs.append(field_errors.required(f"{field}.name"))
        elif name in seen:
            errs.append(field_errors.duplicate(f"{field}.name", name))
        else:
            checks.report_problems(names.label_problems(name), f"{field}.name", name, errs)
        seen.add(name)
        named = [name for name in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(name) is not None]
        if len(named) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errs.append(field_errors.invalid(field, claim, detail))
        elif not named:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errs.append(field_errors.invalid(field, claim, detail))
        for source in named:
            checks.report_problems(names.subdomain_problems(claim[source]), f"{field}.{source}", claim[source], errs)
    return frozenset(seen - {""})


def _check_host_network(containers: list[Object], at: str, errs: list[FieldError], *, is_pod: bool) -> None:
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            host, own = port.get("hostPort") or 0, port.get("containerPort") or 0
            if (is_pod or host) and host != own:
                detail = "must match `containerPort` when `hostNetwork` is true"
                errs.append(field_errors.invalid(f"{at}[{index}].ports[{number}].hostPort", host, detail))


def _check_pod_level(spec: Object, at: str, errs: list[FieldError]) -> None:
    """Require pod-level resources to cover the sum of the containers' requests."""
    resources = spec["resources"]
    if resources.get("claims") is not None:  # an empty list too
        errs.append(field_errors.forbidden(f"{at}.claims", "claims may not be set for Resources at pod-level"))
    compute_resources.check_requirements(resources, at, errs, name_check=compute_resources.check_pod_level_name)
    requests: dict[str, Any] = resources.get("requests") or {}
    limits: dict[str, Any] = resources.get("limits") or {}
    for name, together in container_total(spec, "requests").items():
        request = quantity.parse(requests.get(name) or "0")
        if together > request:
            detail = f"must be greater than or equal to aggregate container requests of {together}"
            errs.append(field_errors.invalid(f"{at}.requests[{name}]", str(request), detail))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and quantity.compare(text, limits[name]) > 0:
                detail = f"must be less than or equal to pod limits of {quantity.canonical(limits[name])}"
                field = f"{at}.containers[{index}][{name}].limits"
                errs.append(field_errors.invalid(field, quantity.canonical(text), detail))


def _check_dns(config: Object | None, policy: str | None, at: str, errs: list[FieldError]) -> None:
    if policy == "None":
        if config is None:
            errs.append(field_errors.required(at, "must provide `dnsConfig` when `dnsPolicy` is None"))
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errs.append(field_errors.required(f"{at}.nameservers", detail))
            return
    if config is None:
        return
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        errs.append(field_errors.invalid(f"{at}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        checks.ip(server, f"{at}.nameservers[{index}]", errs)
    if len(searches) > 32:
        errs.append(field_errors.invalid(f"{at}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        errs.append(field_errors.invalid(f"{at}.searches", searches, detail))
    for index, search in enumerate(searches):
        _check_search_domain(search, f"{at}.searches[{index}]", errs)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errs.append(field_errors.required(f"{at}.options[{index}]", "must not be empty"))


def _check_search_domain(search: str, field: str, errs: list[FieldError]) -> None:
    """Check a search domain, which may have underscores and a trailing dot, or be a single dot."""
    if search == ".":
        return
    domain = search.removesuffix(".")
    if len(domain) > names.SUBDOMAIN_LENGTH:
        errs.append(field_errors.invalid(field, domain, "must be no more than 253 characters"))
    if not _is_search_domain(domain):
        detail = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
            "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
            f"validation is '{_SEARCH_DOMAIN}')"
        )
        errs.append(field_errors.invalid(field, domain, detail))
