"""Validation of the spec of a claim: of a PVC, of an ephemeral volume, or of a StatefulSet's claim template."""

from __future__ import annotations

from typing import Any

from torchyard.api import checks, compute_resources, field_errors, names, quantity, selectors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def check_access_modes(modes: list[str], field: str, errs: list[FieldError]) -> None:
    for mode in modes:
        checks.optional_enum(mode, ACCESS_MODES, field, errs)
    known = {mode for mode in modes if mode in ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        errs.append(field_errors.forbidden(field, "may not use ReadWriteOncePod with other access modes"))


def check_class_name(name: str | None, field: str, errs: list[FieldError]) -> None:
    if name:
        checks.report_problems(names.subdomain_problems(name), field, name, errs)


def check_claim_spec(spec: Object, at: str, errs: list[FieldError]) -> None:
    modes = spec.get("accessModes") or []
    if not modes:
        errs.append(field_errors.required(f"{at}.accessModes", "at least 1 access mode is required"))
    errs += selectors.validate_object(spec.get("selector"), f"{at}.selector")
    check_access_modes(modes, f"{at}.accessModes", errs)
    _check_size((spec.get("resources") or {}).get("requests") or {}, f"{at}.resources[storage]", errs)
    check_class_name(spec.get("storageClassName"), f"{at}.storageClassName", errs)
    checks.optional_enum(spec.get("volumeMode"), VOLUME_MODES, f"{at}.volumeMode", errs)
    _check_data_sources(spec, at, errs)
    check_class_name(spec.get("volumeAttributesClassName"), f"{at}.volumeAttributesClassName", errs)


def _check_size(requests: dict[str, Any], field: str, errs: list[FieldError]) -> None:
    size = requests.get("storage")
    if size is None:
        errs.append(field_errors.required(field))
        return
    amount = quantity.parse(size)
    if amount.nano <= 0:
        errs.append(field_errors.invalid(field, str(amount), checks.NOT_POSITIVE))
    else:
        compute_resources.check_quantity("storage", amount, field, errs)


def _check_data_sources(spec: Object, at: str, errs: list[FieldError]) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None:
        _check_data_source(source, f"{at}.dataSource", errs)
    if reference is not None:
        _check_data_source(reference, f"{at}.dataSourceRef", errs)
        if namespace := reference.get("namespace"):
            checks.report_problems(names.label_problems(namespace), f"{at}.dataSourceRef.namespace", namespace, errs)
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        errs.append(field_errors.invalid(at, {}, detail))
    elif any(source.get(key) != reference.get(key) for key in ("apiGroup", "kind", "name")):
        errs.append(field_errors.invalid(at, {}, "must match dataSourceRef"))


def _check_data_source(source: Object, at: str, errs: list[FieldError]) -> None:
    for name in ("name", "kind"):
        if not source.get(name):
            errs.append(field_errors.required(f"{at}.{name}"))
    group, kind = source.get("apiGroup"), source.get("kind") or ""
    if group:
        checks.report_problems(names.subdomain_problems(group), f"{at}.apiGroup", group, errs)
    elif kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errs.append(field_errors.invalid(at, kind, detail))


def check_claim_template(template: Object, at: str, errs: list[FieldError]) -> None:
    """Check a claim template; only labels and annotations of its metadata are used."""
    meta = template.get("metadata") or {}
    errs += names.validate_annotations(meta.get("annotations"), f"{at}.metadata.annotations")
    errs += names.validate_labels(meta.get("labels"), f"{at}.metadata.labels")
    for name, value in meta.items():
        if value and name not in ("annotations", "labels"):
            errs.append(field_errors.forbidden(f"{at}.metadata.{name}", "cannot be set"))
    check_claim_spec(template.get("spec") or {}, f"{at}.spec", errs)
