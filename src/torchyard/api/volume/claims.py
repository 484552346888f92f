"""The spec of a claim: alone, in a pod's ephemeral volume, or in a StatefulSet's template."""

from __future__ import annotations

from typing import Any

from torchyard.api import amounts, checks, faults, names, quantity, selectors
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def check_access_modes(modes: list[str], field: str, found: list[Fault]) -> None:
    for mode in modes:
        checks.choice(mode, ACCESS_MODES, field, found)
    known = {mode for mode in modes if mode in ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        found.append(faults.forbidden(field, "may not use ReadWriteOncePod with other access modes"))


def check_class_name(name: str | None, field: str, found: list[Fault]) -> None:
    if name:
        checks.told(names.subdomain_problems(name), field, name, found)


def check_claim_spec(spec: Object, at: str, found: list[Fault]) -> None:
    modes = spec.get("accessModes") or []
    if not modes:
        found.append(faults.required(f"{at}.accessModes", "at least 1 access mode is required"))
    found += selectors.validate_object(spec.get("selector"), f"{at}.selector")
    check_access_modes(modes, f"{at}.accessModes", found)
    _check_size((spec.get("resources") or {}).get("requests") or {}, f"{at}.resources[storage]", found)
    check_class_name(spec.get("storageClassName"), f"{at}.storageClassName", found)
    checks.choice(spec.get("volumeMode"), VOLUME_MODES, f"{at}.volumeMode", found)
    _check_data_sources(spec, at, found)
    check_class_name(spec.get("volumeAttributesClassName"), f"{at}.volumeAttributesClassName", found)


def _check_size(requests: dict[str, Any], field: str, found: list[Fault]) -> None:
    size = requests.get("storage")
    if size is None:
        found.append(faults.required(field))
        return
    amount = quantity.parse(size)
    if amount.nano <= 0:
        found.append(faults.invalid(field, str(amount), checks.NOT_POSITIVE))
    else:
        amounts.check_amount("storage", amount, field, found)


def _check_data_sources(spec: Object, at: str, found: list[Fault]) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None:
        _check_data_source(source, f"{at}.dataSource", found)
    if reference is not None:
        _check_data_source(reference, f"{at}.dataSourceRef", found)
        if namespace := reference.get("namespace"):
            checks.told(names.label_problems(namespace), f"{at}.dataSourceRef.namespace", namespace, found)
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        found.append(faults.invalid(at, {}, detail))
    elif any(source.get(key) != reference.get(key) for key in ("apiGroup", "kind", "name")):
        found.append(faults.invalid(at, {}, "must match dataSourceRef"))


def _check_data_source(source: Object, at: str, found: list[Fault]) -> None:
    for name in ("name", "kind"):
        if not source.get(name):
            found.append(faults.required(f"{at}.{name}"))
    group, kind = source.get("apiGroup"), source.get("kind") or ""
    if group:
        checks.told(names.subdomain_problems(group), f"{at}.apiGroup", group, found)
    elif kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        found.append(faults.invalid(at, kind, detail))


def check_claim_template(template: Object, at: str, found: list[Fault]) -> None:
    """A claim made for a pod: only labels and annotations of its metadata count."""
    meta = template.get("metadata") or {}
    found += names.validate_annotations(meta.get("annotations"), f"{at}.metadata.annotations")
    found += names.validate_labels(meta.get("labels"), f"{at}.metadata.labels")
    for name, value in meta.items():
        if value and name not in ("annotations", "labels"):
            found.append(faults.forbidden(f"{at}.metadata.{name}", "cannot be set"))
    check_claim_spec(template.get("spec") or {}, f"{at}.spec", found)
