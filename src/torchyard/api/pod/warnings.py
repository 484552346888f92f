"""Texts of the Warning header about valid but suspicious pods, as upstream has them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from torchyard.api import checks, quantity
from torchyard.api.objects import Object
from torchyard.api.pod.overlaps import PathOverlaps, PortOverlaps
from torchyard.api.pod.token import TOKEN_PROJECTION
from torchyard.api.pod.validation import APP_ARMOR, all_containers

_DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "seccomp.security.alpha.kubernetes.io/pod": 'non-functional in v1.27+; use the "seccompProfile" field instead',
}
_CONTAINER_SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
_DEPRECATED_VOLUMES = {
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "photonPersistentDisk": ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "quobyte": ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    "flocker": ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_SELECTOR = "a null labelSelector results in matching no pod"


# A response has 4096 characters of warnings at most, so that further ones are not even computed.
MAX_WARNINGS = 1000
# The paths of a projected volume are compared up to this length of all together.
_MAX_PATHS_LENGTH = 256 * 1024


def pod_warnings(pod: Object) -> list[str]:
    return list(islice(_warnings(pod["spec"], pod["metadata"], "spec", "metadata"), MAX_WARNINGS))


def template_warnings(template: Object, at: str) -> list[str]:
    spec, metadata = template.get("spec") or {}, template.get("metadata") or {}
    return list(islice(_warnings(spec, metadata, f"{at}.spec", f"{at}.metadata"), MAX_WARNINGS))


def _warnings(spec: Object, meta: Object, at: str, meta_at: str) -> Iterator[str]:  # noqa: C901, PLR0912 - one branch per warning, in upstream's order
    for key in spec.get("nodeSelector") or ():
        if key in _DEPRECATED_NODE_LABELS:
            yield f"{at}.nodeSelector[{key}]: {_deprecated_label(key)}"
    for key in meta.get("annotations") or ():
        if key in _DEPRECATED_ANNOTATIONS:
            yield f"{meta_at}.annotations[{key}]: {_DEPRECATED_ANNOTATIONS[key]}"
        elif key.startswith(_CONTAINER_SECCOMP):
            yield f'{meta_at}.annotations[{key}]: non-functional in v1.27+; use the "seccompProfile" field instead'
        elif key.startswith(APP_ARMOR):
            yield f'{meta_at}.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    if spec.get("affinity"):
        yield from _affinity_warnings(spec["affinity"], f"{at}.affinity")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        if constraint.get("labelSelector") is None:
            yield f"{at}.topologySpreadConstraints[{index}].labelSelector: {_NO_SELECTOR}"
        key = constraint.get("topologyKey")
        if key in _DEPRECATED_NODE_LABELS:
            yield f"{at}.topologySpreadConstraints[{index}].topologyKey: {key} is {_deprecated_label(key)}"
    for index, volume in enumerate(spec.get("volumes") or ()):
        for kind in volume:
            if kind in _DEPRECATED_VOLUMES:
                name, text = _DEPRECATED_VOLUMES[kind]
                yield f"{at}.volumes[{index}].{name}: {text}"
        if (projected := volume.get("projected")) and projected != TOKEN_PROJECTION:
            yield from _projected_warnings(volume)
    if spec.get("hostAliases") or spec.get("imagePullSecrets") or spec.get("dnsConfig"):
        yield from _duplicate_warnings(spec, at)
    ports = 0
    for kind, index, container in all_containers(spec):
        ports += len(container.get("ports") or ())
        yield from _container_warnings(container, f"{at}.{kind}[{index}]")
    if ports > 1:
        yield from _port_warnings(spec, at)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield f"{at}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"


def _deprecated_label(key: str) -> str:
    since, use = _DEPRECATED_NODE_LABELS[key]
    return f'deprecated since {since}; use "{use}" instead'


def _affinity_warnings(affinity: Object, at: str) -> Iterator[str]:
    nodes = affinity.get("nodeAffinity") or {}
    terms = [
        (f"{_REQUIRED}.nodeSelectorTerms[{index}]", term)
        for index, term in enumerate((nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())
    ]
    terms += [
        (f"{_PREFERRED}[{index}].preference", preference.get("preference") or {})
        for index, preference in enumerate(nodes.get(_PREFERRED) or ())
    ]
    for where, term in terms:
        for number, expression in enumerate(term.get("matchExpressions") or ()):
            key = expression.get("key")
            if key in _DEPRECATED_NODE_LABELS:
                yield f"{at}.nodeAffinity.{where}.matchExpressions[{number}].key: {key} is {_deprecated_label(key)}"
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for index, term in enumerate(pods.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{at}.{kind}.{_REQUIRED}[{index}].labelSelector: {_NO_SELECTOR}"
        for index, weighted in enumerate(pods.get(_PREFERRED) or ()):
            if (weighted.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{at}.{kind}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NO_SELECTOR}"


def _projected_warnings(volume: Object) -> Iterator[str]:
    """Warn about files of one volume whose paths contain each other."""
    files: list[tuple[str, str]] = []
    for source in volume["projected"].get("sources") or ():
        if not any(content is not None for content in source.values()):
            yield f'volume "{volume.get("name")}" (Projected) has no sources provided'
        for kind, label in (("secret", "Secret"), ("configMap", "ConfigMap")):
            keyed = source.get(kind) or {}
            files += [(item.get("path") or "", f'{label} "{keyed.get("name")}"') for item in keyed.get("items") or ()]
        items = (source.get("downwardAPI") or {}).get("items") or ()
        files += [(item.get("path") or "", "DownwardAPI") for item in items]
        token = source.get("serviceAccountToken")
        if token is not None:
            files.append((token.get("path") or "", "ServiceAccountToken"))
    overlaps = PathOverlaps()
    length = 0
    for path, source in files:
        length += len(path)
        if length > _MAX_PATHS_LENGTH:
            return
        for other, other_source in overlaps.add(path, source):
            yield (
                f'volume "{volume.get("name")}" (Projected): overlapping paths: '
                f'"{path}" ({source}) with "{other}" ({other_source})'
            )


def _duplicate_warnings(spec: Object, at: str) -> Iterator[str]:
    seen: set[object] = set()
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        if alias.get("ip") in seen:
            yield f'{at}.hostAliases[{index}].ip: duplicate ip "{alias.get("ip")}"'
        seen.add(alias.get("ip"))
    names: set[object] = set()
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        name = secret.get("name")
        if not name:
            yield f'{at}.imagePullSecrets[{index}].name: invalid empty name ""'
        elif name in names:
            yield f'{at}.imagePullSecrets[{index}].name: duplicate name "{name}"'
        names.add(name)
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from _address_warnings(server, f"{at}.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from _address_warnings(alias.get("ip") or "", f"{at}.hostAliases[{index}].ip")


def _address_warnings(text: str, field: str) -> Iterator[str]:
    address = checks.parse_ip(text)
    if address is not None and address.version == 4 and str(address) != text:
        yield (
            f'{field}: non-standard IP address "{text}" will be considered invalid in a future Kubernetes release: '
            f'use "{address}"'
        )


def _container_warnings(container: Object, at: str) -> Iterator[str]:
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        amounts = resources.get(kind) or {}
        for name in ("memory", "ephemeral-storage"):
            text = amounts.get(name)
            if text is not None and not quantity.parse(text).whole:
                yield f'{at}.resources.{kind}[{name}]: fractional byte value "{text}" is invalid, must be an integer'
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name = variable.get("name") or ""
        if name in seen and f"$({name})" not in (variable.get("value") or ""):
            yield f'{at}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


def _port_warnings(spec: Object, at: str) -> Iterator[str]:
    """Warn about ports that are equal, or equal except for the host port."""
    overlaps = PortOverlaps()
    for kind, index, container in all_containers(spec):
        if kind == "initContainers" and container.get("restartPolicy") != "Always":
            continue
        for number, port in enumerate(container.get("ports") or ()):
            where = f"{at}.{kind}[{index}].ports[{number}]"
            for other_where, is_equal in overlaps.add(where, port):
                yield f"{where}: {'duplicate' if is_equal else 'overlapping'} port definition with {other_where}"
