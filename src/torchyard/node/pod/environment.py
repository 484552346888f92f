"""A container's environment: image, services, config maps, secrets, fields, resources, and `$(VAR)` expansion. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from torchyard.api import quantity
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages

Lookup = Callable[[str, str], Object | None]  # (ConfigMap or Secret, name) → its data


class CreateContainerConfigError(YardError):
    """The container cannot be created as specified. `code` is the reason of its waiting state."""

    code = messages.REASON_CREATE_CONFIG_ERROR


_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the value, `$$` a dollar sign, and an unknown name stays as it is."""

    def replace(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return values.get(match.group(1), match.group(0))

    return _REFERENCE.sub(replace, text)


def missing_references(text: str, values: Mapping[str, str]) -> list[str]:
    """The names in `$(NAME)` that have no value, or an empty one: a path must not depend on them."""
    names = {match.group(1) for match in _REFERENCE.finditer(text) if match.group(0) != "$$"}
    return sorted(name for name in names if not values.get(name))


def resolve(
    container: Object,
    base: Mapping[str, str],
    *,
    namespace: str,
    lookup: Lookup,
    fields: Callable[[str, Object], str],
) -> dict[str, str]:
    """The variables of a container in order. Each may refer to those before it."""
    values = dict(base)
    for source in container.get("envFrom") or ():
        values |= _all_keys(source, lookup)
    for variable in container.get("env") or ():
        name = variable["name"]
        if variable.get("valueFrom"):
            value = _value_from(variable["valueFrom"], lookup, fields, namespace=namespace)
            if value is not None:
                values[name] = value
        else:
            values[name] = expand(variable.get("value") or "", values)
    return values


def _is_variable(name: str) -> bool:
    """Upstream accepts every printable ASCII name without an equals sign and skips other keys."""
    return bool(name) and name.isascii() and name.isprintable() and "=" not in name


def _all_keys(source: Object, lookup: Lookup) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
        reference = source.get(key)
        if reference:
            data = lookup(kind, reference["name"])
            if data is None:
                if reference.get("optional"):
                    return {}
                raise CreateContainerConfigError(messages.object_not_found(kind, reference["name"]))
            return {f"{prefix}{name}": text for name, text in data.items() if _is_variable(f"{prefix}{name}")}
    return {}


def _value_from(source: Object, lookup: Lookup, fields: Callable[[str, Object], str], *, namespace: str) -> str | None:
    for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        reference = source.get(key)
        if not reference:
            continue
        data = lookup(kind, reference["name"])
        if data is not None and reference["key"] in data:
            return str(data[reference["key"]])
        if reference.get("optional"):
            return None
        if data is None:
            raise CreateContainerConfigError(messages.object_not_found(kind, reference["name"]))
        raise CreateContainerConfigError(messages.key_not_found(kind, namespace, reference["name"], reference["key"]))
    for key in ("fieldRef", "resourceFieldRef"):
        if source.get(key):
            return fields(key, source[key])
    return ""


def field_value(pod: Object, path: str, *, status: Object) -> str:
    """A downward-API field of the pod."""
    metadata, spec = pod["metadata"], pod["spec"]
    match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if match:
        return str((metadata.get(match.group(1)) or {}).get(match.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = metadata.get(path.partition(".")[2]) or {}
        return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(pairs.items()))
    fields = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.podIP": status.get("podIP"),
        "status.podIPs": ",".join(entry["ip"] for entry in status.get("podIPs") or ()),
        "status.hostIP": status.get("hostIP"),
        "status.hostIPs": ",".join(entry["ip"] for entry in status.get("hostIPs") or ()),
    }
    if path not in fields:
        raise CreateContainerConfigError(messages.unsupported_field_path(path))
    return str(fields[path] or "")


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def resource_value(containers: list[Object], reference: Object, own: Object, allocatable: Mapping[str, str]) -> str:
    """`limits.cpu` and so on, in units of the divisor, rounded up; without a limit, what the node has."""
    container = own
    if reference.get("containerName"):
        container = next(other for other in containers if other["name"] == reference["containerName"])
    kind, _, name = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    text = (resources.get(kind) or {}).get(name)
    if text is None and kind == "limits" and name in allocatable:
        text = allocatable[name]
    amount = quantity.parse(str(text or "0"))
    divisor = quantity.parse(str(reference.get("divisor") or "1"))
    return str(math.ceil(amount.nano / divisor.nano)) if divisor.nano else str(amount.value)
