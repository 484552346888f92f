"""Validation of a pod's volumes and of volume mounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.references import FILE_FIELDS, check_field_ref, check_resource_ref
from torchyard.api.pod.token import TOKEN_PROJECTION
from torchyard.api.volume.claims import check_claim_template
from torchyard.api.volume.sources import (
    MORE_THAN_ONE,
    NAMES_IF_FORBIDDEN,
    NAMES_IN_MESSAGES,
    POD_SOURCES,
    check_key_to_path,
)

Volumes = Mapping[str, Object]

_TOKEN_SECONDS = 10 * 60
_PROJECTED = ("secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle")
_PROPAGATION = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")


def check_volumes(volumes: list[Object], pod_name: str, at: str, errs: list[FieldError]) -> Volumes:
    """Check a pod's volumes; return the volumes that containers may mount, by name."""
    known: dict[str, Object] = {}
    ephemeral_claims = (
        {f"{pod_name}-{volume.get('name')}" for volume in volumes if volume.get("ephemeral") is not None}
        if pod_name
        else ()
    )
    for index, volume in enumerate(volumes):
        before = len(errs)
        name = volume.get("name") or ""
        _check_source(volume, pod_name, at, index, errs)
        if not name:
            errs.append(field_errors.required(f"{at}[{index}].name"))
        elif problems := names.label_problems(name):
            checks.report_problems(problems, f"{at}[{index}].name", name, errs)
        if name in known:
            errs.append(field_errors.duplicate(f"{at}[{index}].name", name))
        if len(errs) == before:
            known[name] = volume
        claim = volume.get("persistentVolumeClaim")
        if claim and claim.get("claimName") in ephemeral_claims:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errs.append(
                field_errors.invalid(f"{at}[{index}].persistentVolumeClaim.claimName", claim["claimName"], detail)
            )
    return known


def _check_source(volume: Object, pod_name: str, at: str, index: int, errs: list[FieldError]) -> None:
    if len(volume) == 2 and volume.get("projected") == TOKEN_PROJECTION:
        return
    kinds = [kind for kind, source in volume.items() if source is not None and kind != "name"]
    if not kinds:
        errs.append(field_errors.required(f"{at}[{index}]", "must specify a volume type"))
        return
    field = f"{at}[{index}]"
    if len(kinds) > 1:
        kinds.sort(key=_ORDER.get if all(kind in _ORDER for kind in kinds) else str)  # type: ignore[arg-type]
    kind = kinds[0]
    source = volume[kind]
    check = POD_SOURCES.get(kind)
    if check is not None:
        check(source, f"{field}.{NAMES_IN_MESSAGES.get(kind, kind)}", errs)
    elif kind == "projected":
        _check_projected(source, f"{field}.projected", errs)
    elif kind == "downwardAPI":
        checks.file_mode(source.get("defaultMode"), f"{field}.downwardAPI.defaultMode", errs)
        for item in source.get("items") or ():
            _check_downward_file(item, f"{field}.downwardAPI", errs)
    elif kind == "ephemeral":
        _check_ephemeral(source, volume, pod_name, field, errs)
    errs.extend(
        field_errors.forbidden(f"{field}.{NAMES_IF_FORBIDDEN.get(kind, kind)}", MORE_THAN_ONE) for kind in kinds[1:]
    )


_ORDER = {
    kind: index
    for index, kind in enumerate(
        source for kind in POD_SOURCES for source in (("downwardAPI", kind) if kind == "fc" else (kind,))
    )
} | {"projected": 90, "scaleIO": 91, "csi": 92, "ephemeral": 93, "image": 94}


def _check_ephemeral(source: Object, volume: Object, pod_name: str, field: str, errs: list[FieldError]) -> None:
    template = source.get("volumeClaimTemplate")
    if template is None:
        errs.append(field_errors.required(f"{field}.ephemeral.volumeClaimTemplate"))
    else:
        check_claim_template(template, f"{field}.ephemeral.volumeClaimTemplate", errs)
    name = volume.get("name")
    if pod_name and name:
        claim = f"{pod_name}-{name}"
        problems = [f'PVC name "{claim}": {problem}' for problem in names.subdomain_problems(claim)]
        checks.report_problems(problems, f"{field}.name", name, errs)


def _check_downward_file(item: Object, field: str, errs: list[FieldError]) -> None:
    path = item.get("path") or ""
    if not path:
        errs.append(field_errors.required(f"{field}.path"))
    checks.local_non_reserved_path(path, f"{field}.path", errs)
    reference, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if reference is not None:
        check_field_ref(reference, FILE_FIELDS, f"{field}.fieldRef", errs)
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errs.append(field_errors.invalid(field, "resource", detail))
    elif resource is not None:
        check_resource_ref(resource, f"{field}.resourceFieldRef", errs, container_needed=True)
    else:
        errs.append(field_errors.required(field, "one of fieldRef and resourceFieldRef is required"))
    checks.file_mode(item.get("mode"), f"{field}.mode", errs)


def _check_projected(projected: Object, at: str, errs: list[FieldError]) -> None:
    checks.file_mode(projected.get("defaultMode"), f"{at}.defaultMode", errs)
    taken: set[str] = set()
    for index, source in enumerate(projected.get("sources") or ()):
        field = f"{at}.sources[{index}]"
        kinds = [kind for kind in _PROJECTED if source.get(kind) is not None]
        for kind in ("secret", "configMap"):
            if (keyed := source.get(kind)) is not None:
                _check_projected_keys(keyed, f"{field}.{kind}", at, taken, errs)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _check_downward_file(item, f"{field}.downwardAPI", errs)
            _check_unique_path(item.get("path"), item.get("path"), at, taken, errs)
        if (token := source.get("serviceAccountToken")) is not None:
            _check_token(token, f"{field}.serviceAccountToken", at, errs)
        if (bundle := source.get("clusterTrustBundle")) is not None:
            _check_trust_bundle(bundle, f"{field}.clusterTrustBundle", at, taken, errs)
        if len(kinds) > 1:
            errs.append(field_errors.forbidden(field, "may not specify more than 1 volume type per source"))


def _check_projected_keys(keyed: Object, field: str, at: str, taken: set[str], errs: list[FieldError]) -> None:
    name = keyed.get("name") or ""
    if not name:
        errs.append(field_errors.required(f"{field}.name"))
    for index, item in enumerate(keyed.get("items") or ()):
        check_key_to_path(item, f"{field}.items[{index}]", errs)
        _check_unique_path(item.get("path"), name, at, taken, errs)


def _check_unique_path(path: str | None, value: Any, at: str, taken: set[str], errs: list[FieldError]) -> None:
    """Forbid two files with the same path in one projected volume."""
    if not path:
        return
    if path in taken:
        errs.append(field_errors.invalid(at, value, "conflicting duplicate paths"))
    taken.add(path)


def _check_token(token: Object, field: str, at: str, errs: list[FieldError]) -> None:
    seconds, path = token.get("expirationSeconds") or 0, token.get("path") or ""
    if seconds < _TOKEN_SECONDS:
        detail = "may not specify a duration less than 10 minutes"
        errs.append(field_errors.invalid(f"{field}.expirationSeconds", seconds, detail))
    if seconds > 1 << 32:
        detail = "may not specify a duration larger than 2^32 seconds"
        errs.append(field_errors.invalid(f"{field}.expirationSeconds", seconds, detail))
    if not path:
        errs.append(field_errors.required(f"{at}.path"))
    else:
        checks.local_non_reserved_path(path, f"{at}.path", errs)


def _check_trust_bundle(bundle: Object, field: str, at: str, taken: set[str], errs: list[FieldError]) -> None:
    name, signer, path = bundle.get("name"), bundle.get("signerName"), bundle.get("path") or ""
    if name is not None and signer is not None:
        errs.append(field_errors.invalid(field, bundle, "only one of name and signerName may be used"))
    elif name is None and signer is None:
        errs.append(field_errors.required(field, "either name or signerName must be specified"))
    elif name == "":
        errs.append(field_errors.required(f"{field}.name", "must be a valid object name"))
    elif signer == "":
        errs.append(field_errors.required(f"{field}.signerName", "must be a valid signer name"))
    if not path:
        errs.append(field_errors.required(f"{field}.path"))
    checks.local_non_reserved_path(path, f"{field}.path", errs)
    _check_unique_path(path, path, at, taken, errs)


def check_mounts(container: Object, volumes: Volumes, at: str, errs: list[FieldError]) -> None:
    """Check `volumeMounts` and `volumeDevices` of a container."""
    mounts, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    device_paths = {device.get("name"): device.get("devicePath") for device in devices} if devices else {}
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        volume = volumes.get(name)
        if volume is None or not path or path in paths or devices or len(mount) > 3:
            field = f"{at}.volumeMounts[{index}]"
            _check_mount(mount, volume, f"{at}.volumeMounts", field, errs)
            if path in paths:
                errs.append(field_errors.invalid(f"{field}.mountPath", path, "must be unique"))
            if name in device_paths:
                errs.append(field_errors.invalid(f"{field}.name", name, "must not already exist in volumeDevices"))
            if path in device_paths.values():
                detail = "must not already exist as a path in volumeDevices"
                errs.append(field_errors.invalid(f"{field}.mountPath", path, detail))
            _check_mount_options(mount, container, f"{at}.volumeMounts", field, errs)
        elif mount.get("subPath") or mount.get("subPathExpr"):
            _check_mount_options(mount, container, f"{at}.volumeMounts", f"{at}.volumeMounts[{index}]", errs)
        paths.add(path)
    if devices:
        mount_paths = {mount.get("name"): mount.get("mountPath") for mount in mounts}
        _check_devices(list(devices), mount_paths, volumes, f"{at}.volumeDevices", errs)


def _check_mount(mount: Object, volume: Object | None, at: str, field: str, errs: list[FieldError]) -> None:
    name = mount.get("name") or ""
    if not name:
        errs.append(field_errors.required(f"{field}.name"))
    if volume is None:
        errs.append(field_errors.not_found(f"{field}.name", name))
    if not mount.get("mountPath"):
        errs.append(field_errors.required(f"{field}.mountPath"))


def _check_mount_options(mount: Object, container: Object, at: str, field: str, errs: list[FieldError]) -> None:
    sub_path, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    if sub_path:
        checks.local_descending_path(sub_path, f"{at}.subPath", errs)
    if expression:
        if sub_path:
            detail = "subPathExpr and subPath are mutually exclusive"
            errs.append(field_errors.invalid(f"{field}.subPathExpr", expression, detail))
        checks.local_descending_path(expression, f"{at}.subPathExpr", errs)
    propagation = mount.get("mountPropagation")
    checks.optional_enum(propagation, _PROPAGATION, f"{at}.mountPropagation", errs)
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        detail = "Bidirectional mount propagation is available only to privileged containers"
        errs.append(field_errors.forbidden(f"{at}.mountPropagation", detail))
    recursive = mount.get("recursiveReadOnly")
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errs.append(
                field_errors.forbidden(f"{at}.recursiveReadOnly", "may only be specified when readOnly is true")
            )
        if propagation not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            errs.append(field_errors.forbidden(f"{at}.recursiveReadOnly", detail))
    else:
        checks.optional_enum(recursive, _RECURSIVE, f"{at}.recursiveReadOnly", errs)


def _check_devices(
    devices: list[Object], mounts: Mapping[Any, Any], volumes: Volumes, at: str, errs: list[FieldError]
) -> None:
    seen: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        field, name, path = f"{at}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        volume = volumes.get(name)
        if not name:
            errs.append(field_errors.required(f"{field}.name"))
        if name in seen:
            errs.append(field_errors.invalid(f"{field}.name", name, "must be unique"))
        if volume is None:
            errs.append(field_errors.not_found(f"{field}.name", name))
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errs.append(field_errors.invalid(f"{field}.name", name, detail))
        if not path:
            errs.append(field_errors.required(f"{field}.devicePath"))
        if path in paths:
            errs.append(field_errors.invalid(f"{field}.devicePath", path, "must be unique"))
        if ".." in path.split("/"):
            errs.append(field_errors.invalid(f"{field}.devicePath", path, "can not contain backsteps ('..')"))
        else:
            paths.add(path)
        if name in mounts:
            errs.append(field_errors.invalid(f"{field}.name", name, "must not already exist in volumeMounts"))
        if path in mounts.values():
            detail = "must not already exist as a path in volumeMounts"
            errs.append(field_errors.invalid(f"{field}.devicePath", path, detail))
        if name:
            seen.add(name)
