"""Validation of containers: names, images, ports, variables, probes, lifecycle hooks.

This runs for every pod that is created. A valid container costs a few comparisons per field, and field paths are built
only for errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchyard.api import checks, compute_resources, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.references import ENV_FIELDS, check_field_ref, check_key_ref, check_resource_ref
from torchyard.api.pod.security import check_security_context
from torchyard.api.pod.volumes import Volumes, check_mounts

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_SOURCES = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
_SIDECAR_ONLY = "may not be set for init containers without restartPolicy=Always"
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


@dataclass(slots=True)
class PodContext:
    """What the validation of a container needs to know about its pod."""

    volumes: Volumes
    claims: frozenset[str] = frozenset()
    restart_policy: str = "Always"
    grace_period: int | None = None
    host_users: bool = True
    names: set[str] = field(default_factory=set)


def check_containers(containers: list[Object], pod: PodContext, at: str, errs: list[FieldError]) -> None:
    """Check the main containers."""
    if not containers:
        errs.append(field_errors.required(at))
        return
    has_ports = False
    for index, container in enumerate(containers):
        where = f"{at}[{index}]"
        name = container.get("name") or ""
        check_common(container, pod, where, errs)
        if name in pod.names:
            errs.append(field_errors.duplicate(f"{where}.name", name))
        pod.names.add(name)
        if container.get("lifecycle"):
            _check_lifecycle(container["lifecycle"], pod, f"{where}.lifecycle", errs)
        _check_probes(container, pod, where, errs)
        if container.get("restartPolicy") is not None:
            errs.append(field_errors.forbidden(f"{where}.restartPolicy", "may not be set for non-init containers"))
        has_ports = has_ports or bool(container.get("ports"))
    if has_ports:
        _check_host_ports(containers, at, errs)


def check_init_containers(containers: list[Object], pod: PodContext, at: str, errs: list[FieldError]) -> None:
    """Check the init containers, including sidecars."""
    for index, container in enumerate(containers):
        where = f"{at}[{index}]"
        name = container.get("name") or ""
        check_common(container, pod, where, errs)
        policy = container.get("restartPolicy")
        checks.optional_enum(policy, ("Always",), f"{where}.restartPolicy", errs)
        if name in pod.names:
            errs.append(field_errors.duplicate(f"{where}.name", name))
        elif name:
            pod.names.add(name)
        if container.get("ports"):
            _check_host_ports([container], at, errs)
        if policy == "Always":
            if container.get("lifecycle"):
                _check_lifecycle(container["lifecycle"], pod, f"{where}.lifecycle", errs)
            _check_probes(container, pod, where, errs)
        else:
            refused = [field for field in ("lifecycle", *_PROBES) if container.get(field) is not None]
            errs.extend(field_errors.forbidden(f"{where}.{field}", _SIDECAR_ONLY) for field in refused)


_EPHEMERAL_REFUSED = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy")


def check_ephemeral_containers(containers: list[Object], pod: PodContext, at: str, errs: list[FieldError]) -> None:
    """Check the ephemeral containers."""
    others = set(pod.names)
    for index, container in enumerate(containers):
        where = f"{at}[{index}]"
        name, target = container.get("name") or "", container.get("targetContainerName")
        check_common(container, pod, where, errs)
        check_image_spaces(container, where, errs)
        if name in pod.names:
            errs.append(field_errors.duplicate(f"{where}.name", name))
        pod.names.add(name)
        if target and target not in others:
            errs.append(field_errors.not_found(f"{where}.targetContainerName", target))
        refused = [name for name in _EPHEMERAL_REFUSED if container.get(name) not in (None, [])]
        refused += ["resources"] if any((container.get("resources") or {}).values()) else []
        detail = "cannot be set for an Ephemeral Container"
        errs.extend(field_errors.forbidden(f"{where}.{name}", detail) for name in refused)
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            sub_paths = [name for name in ("subPath", "subPathExpr") if mount.get(name)]
            errs.extend(field_errors.forbidden(f"{where}.volumeMounts[{number}].{name}", detail) for name in sub_paths)


def check_image_spaces(container: Object, where: str, errs: list[FieldError]) -> None:
    """Forbid spaces around an image. Templates allow them, pods do not."""
    image = container.get("image") or ""
    if image != image.strip():
        errs.append(field_errors.invalid(f"{where}.image", image, "must not have leading or trailing whitespace"))


def check_common(container: Object, pod: PodContext, at: str, errs: list[FieldError]) -> None:  # noqa: C901 - one branch per field, as upstream's function
    """Check the fields that every type of container has."""
    get = container.get
    name = get("name")
    if not name:
        errs.append(field_errors.required(f"{at}.name"))
    elif problems := names.label_problems(name):
        checks.report_problems(problems, f"{at}.name", name, errs)
    if not get("image"):
        errs.append(field_errors.required(f"{at}.image"))
    if get("terminationMessagePolicy") not in _MESSAGE_POLICIES:
        policy = get("terminationMessagePolicy")
        checks.required_enum(policy, _MESSAGE_POLICIES, f"{at}.terminationMessagePolicy", errs)
    if ports := get("ports"):
        _check_ports(ports, f"{at}.ports", errs)
    if variables := get("env"):
        _check_env(variables, at, errs)
    if sources := get("envFrom"):
        _check_env_from(sources, f"{at}.envFrom", errs)
    if get("volumeMounts") or get("volumeDevices"):
        check_mounts(container, pod.volumes, at, errs)
    if get("imagePullPolicy") not in _PULL_POLICIES:
        checks.required_enum(get("imagePullPolicy"), _PULL_POLICIES, f"{at}.imagePullPolicy", errs)
    if resources := get("resources"):
        compute_resources.check_requirements(resources, f"{at}.resources", errs, claims=pod.claims)
    if policies := get("resizePolicy"):
        _check_resize_policy(policies, pod.restart_policy, f"{at}.resizePolicy", errs)
    if security := get("securityContext"):
        check_security_context(security, f"{at}.securityContext", errs, host_users=pod.host_users)


def _check_ports(ports: list[Object], at: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name, number, host = port.get("name"), port.get("containerPort") or 0, port.get("hostPort") or 0
        if name:
            if problems := checks.port_name_problems(name):
                checks.report_problems(problems, f"{at}[{index}].name", name, errs)
            elif name in seen:
                errs.append(field_errors.duplicate(f"{at}[{index}].name", name))
            seen.add(name)
        if number == 0:
            errs.append(field_errors.required(f"{at}[{index}].containerPort"))
        elif not 0 < number < 65536:
            checks.port_number(number, f"{at}[{index}].containerPort", errs)
        if host and not 0 < host < 65536:
            checks.port_number(host, f"{at}[{index}].hostPort", errs)
        if port.get("protocol") not in checks.PROTOCOLS:
            checks.required_enum(port.get("protocol"), checks.PROTOCOLS, f"{at}[{index}].protocol", errs)


def _check_host_ports(containers: list[Object], at: str, errs: list[FieldError]) -> None:
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if key in taken:
                errs.append(field_errors.duplicate(f"{at}[{index}].ports[{number}].hostPort", key))
            taken.add(key)


def _check_env(variables: list[Object], at: str, errs: list[FieldError]) -> None:
    for index, variable in enumerate(variables):
        name = variable.get("name")
        if not name:
            errs.append(field_errors.required(f"{at}.env[{index}].name"))
        elif not (name.isidentifier() and name.isascii()) and not checks.is_env_name(name):
            errs.append(field_errors.invalid(f"{at}.env[{index}].name", name, checks.ENV_NAME))
        source = variable.get("valueFrom")
        if source is not None:
            _check_env_source(source, variable.get("value"), f"{at}.env[{index}].valueFrom", errs)


def _check_env_source(source: Object, value: Any, at: str, errs: list[FieldError]) -> None:
    count = 0
    if (reference := source.get("fieldRef")) is not None:
        count += 1
        check_field_ref(reference, ENV_FIELDS, f"{at}.fieldRef", errs)
    if (reference := source.get("resourceFieldRef")) is not None:
        count += 1
        check_resource_ref(reference, f"{at}.resourceFieldRef", errs)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if (reference := source.get(kind)) is not None:
            count += 1
            check_key_ref(reference, f"{at}.{kind}", errs)
    if count == 0:
        errs.append(field_errors.invalid(at, "", _SOURCES))
    elif value:
        errs.append(field_errors.invalid(at, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        errs.append(field_errors.invalid(at, "", "may not have more than one field specified at a time"))


def _check_env_from(sources: list[Object], at: str, errs: list[FieldError]) -> None:
    for index, source in enumerate(sources):
        prefix = source.get("prefix")
        if prefix and not checks.is_env_name(prefix):
            errs.append(field_errors.invalid(f"{at}[{index}].prefix", prefix, checks.ENV_NAME))
        kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in kinds:
            name = source[kind].get("name")
            if not name:
                errs.append(field_errors.required(f"{at}[{index}].{kind}.name"))
            elif problems := names.name_problems(name, "subdomain", prefix=True):
                checks.report_problems(problems, f"{at}[{index}].{kind}.name", name, errs)
        if not kinds:
            errs.append(field_errors.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(kinds) > 1:
            errs.append(field_errors.invalid(at, "", "may not have more than one field specified at a time"))


def _check_resize_policy(policies: list[Object], restart_policy: str, at: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            errs.append(field_errors.duplicate(f"{at}[{index}]", resource))
        seen.add(resource)
        checks.required_enum(resource, ("cpu", "memory"), at, errs)
        checks.required_enum(restart, ("NotRequired", "RestartContainer"), at, errs)
        if restart_policy == "Never" and restart != "NotRequired":
            errs.append(field_errors.invalid(at, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'"))


def _check_probes(container: Object, pod: PodContext, at: str, errs: list[FieldError]) -> None:
    for kind in _PROBES:
        probe = container.get(kind)
        if probe is None:
            continue
        where = f"{at}.{kind}"
        _check_handler(probe, pod.grace_period, where, errs, sleep=False)
        for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
            if (probe.get(name) or 0) < 0:
                errs.append(field_errors.invalid(f"{where}.{name}", probe[name], names.NOT_NEGATIVE))
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is not None and grace <= 0:
            errs.append(field_errors.invalid(f"{where}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
        if kind == "readinessProbe":
            if grace is not None:
                detail = "must not be set for readinessProbes"
                errs.append(field_errors.invalid(f"{where}.terminationGracePeriodSeconds", grace, detail))
        elif probe.get("successThreshold") != 1:
            errs.append(field_errors.invalid(f"{where}.successThreshold", probe.get("successThreshold"), "must be 1"))


def _check_lifecycle(lifecycle: Object, pod: PodContext, at: str, errs: list[FieldError]) -> None:
    for hook in ("postStart", "preStop"):
        handler = lifecycle.get(hook)
        if handler is not None:
            _check_handler(handler, pod.grace_period, f"{at}.{hook}", errs, sleep=True)


_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def _check_handler(handler: Object, grace: int | None, at: str, errs: list[FieldError], *, sleep: bool) -> None:
    """Check a probe or lifecycle handler. Only probes have grpc, only hooks have sleep."""
    unknown = "grpc" if sleep else "sleep"
    kinds = [kind for kind in _HANDLERS if kind != unknown and handler.get(kind) is not None]
    if not kinds:
        errs.append(field_errors.required(at, "must specify a handler type"))
        return
    kind = kinds[0]
    action, where = handler[kind], f"{at}.{kind}"
    if kind == "exec":
        if not action.get("command"):
            errs.append(field_errors.required(f"{where}.command"))
    elif kind == "httpGet":
        _check_http(action, where, errs)
    elif kind in ("tcpSocket", "grpc"):
        checks.port_number_or_name(action.get("port"), f"{where}.port", errs)
    elif grace is not None and not 0 <= (action.get("seconds") or 0) <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        errs.append(field_errors.invalid(where, action["seconds"], detail))
    errs.extend(
        field_errors.forbidden(f"{at}.{kind}", "may not specify more than 1 handler type") for kind in kinds[1:]
    )


def _check_http(action: Object, at: str, errs: list[FieldError]) -> None:
    if not action.get("path"):
        errs.append(field_errors.required(f"{at}.path"))
    checks.port_number_or_name(action.get("port"), f"{at}.port", errs)
    checks.optional_enum(action.get("scheme") or "", ("HTTP", "HTTPS"), f"{at}.scheme", errs)
    for header in action.get("httpHeaders") or ():
        checks.header_name(header.get("name") or "", f"{at}.httpHeaders", errs)
