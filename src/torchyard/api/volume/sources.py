"""Validation of every volume source, of pods and of PersistentVolumes.

Most sources only have required fields; these are entries of a table. Field names are those of upstream's messages,
including its misspellings (`downwarAPI`, `cephFS`, `persistentDisk`), because people search for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torchyard.api import checks, field_errors, names, quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

Check = Callable[[Object, str, list[FieldError]], None]

MORE_THAN_ONE = "may not specify more than 1 volume type"
_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


def require_fields(*fields: str) -> Check:
    """Return a check that only requires these fields."""

    def check(source: Object, at: str, errs: list[FieldError]) -> None:
        errs.extend(field_errors.required(f"{at}.{name}") for name in fields if not source.get(name))

    return check


def _secret_of(source: Object, at: str, errs: list[FieldError], *fields: str) -> None:
    reference = source.get("secretRef")
    if reference is not None:
        errs.extend(field_errors.required(f"{at}.secretRef.{name}") for name in fields if not reference.get(name))


def check_empty_dir(source: Object, at: str, errs: list[FieldError]) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and quantity.parse(limit).nano < 0:
        errs.append(field_errors.forbidden(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity"))


def check_host_path(source: Object, at: str, errs: list[FieldError]) -> None:
    path = source.get("path")
    if not path:
        errs.append(field_errors.required(f"{at}.path"))
        return
    checks.no_backsteps(path, f"{at}.path", errs)
    checks.optional_enum(source.get("type"), _HOST_PATH_TYPES, f"{at}.type", errs)


def check_local(source: Object, at: str, errs: list[FieldError]) -> None:
    path = source.get("path")
    if not path:
        errs.append(field_errors.required(f"{at}.path"))
        return
    checks.no_backsteps(path, f"{at}.path", errs)


def check_git_repo(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("repository")(source, at, errs)
    checks.local_descending_path(source.get("directory") or "", f"{at}.directory", errs)


def _partition(source: Object, at: str, errs: list[FieldError]) -> None:
    if not 0 <= (source.get("partition") or 0) <= 255:
        errs.append(field_errors.invalid(f"{at}.partition", source["partition"], checks.in_range(1, 255)))


def check_gce(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("pdName")(source, at, errs)
    _partition(source, at, errs)


def check_aws(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("volumeID")(source, at, errs)
    _partition(source, at, errs)


def check_nfs(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("server", "path")(source, at, errs)
    path = source.get("path") or ""
    if not path.startswith("/"):
        errs.append(field_errors.invalid(f"{at}.path", path, "must be an absolute path"))


def check_key_to_path(item: Object, at: str, errs: list[FieldError]) -> None:
    path = item.get("path") or ""
    require_fields("key", "path")(item, at, errs)
    checks.local_non_reserved_path(path, f"{at}.path", errs)
    checks.file_mode(item.get("mode"), f"{at}.mode", errs)


def _check_keyed(name: str) -> Check:
    def check(source: Object, at: str, errs: list[FieldError]) -> None:
        if not source.get(name):
            errs.append(field_errors.required(f"{at}.{name}"))
        checks.file_mode(source.get("defaultMode"), f"{at}.defaultMode", errs)
        for index, item in enumerate(source.get("items") or ()):
            check_key_to_path(item, f"{at}.items[{index}]", errs)

    return check


_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.([0-9A-Za-z.-]+)(:[^,;*&$|\s]+)$", re.ASCII)
_EUI = re.compile(r"^eui.[0-9A-Za-z]{16}$", re.ASCII)
_NAA = re.compile(r"^naa.[0-9A-Za-z]{32}$", re.ASCII)
_WELL_KNOWN_INITIATORS = {"iqn": _IQN, "eui": _EUI, "naa": _NAA}


def _initiator(name: str, field: str, errs: list[FieldError]) -> None:
    pattern = _WELL_KNOWN_INITIATORS.get(name[:3])
    if pattern is None:
        errs.append(field_errors.invalid(field, name, "must be valid format starting with iqn, eui, or naa"))
    elif not pattern.search(name):
        errs.append(field_errors.invalid(field, name, "must be valid format"))


def check_iscsi(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("targetPortal")(source, at, errs)
    if not source.get("iqn"):
        errs.append(field_errors.required(f"{at}.iqn"))
    else:
        _initiator(source["iqn"], f"{at}.iqn", errs)
    lun = source.get("lun") or 0
    if not 0 <= lun <= 255:
        errs.append(field_errors.invalid(f"{at}.lun", lun, checks.in_range(0, 255)))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and not source.get("secretRef"):
        errs.append(field_errors.required(f"{at}.secretRef"))
    if source.get("initiatorName") is not None:
        _initiator(source["initiatorName"], f"{at}.initiatorname", errs)


def check_fc(source: Object, at: str, errs: list[FieldError]) -> None:
    targets, ids, lun = source.get("targetWWNs"), source.get("wwids"), source.get("lun")
    field = f"{at}.targetWWNs"
    if not targets and not ids:
        errs.append(field_errors.required(field, "must specify either targetWWNs or wwids, but not both"))
    if targets and ids:
        errs.append(field_errors.invalid(field, targets, "targetWWNs and wwids can not be specified simultaneously"))
    if targets and lun is None:
        errs.append(field_errors.required(f"{at}.lun", "lun is required if targetWWNs is specified"))
    elif targets and lun is not None and not 0 <= lun <= 255:
        errs.append(field_errors.invalid(f"{at}.lun", lun, checks.in_range(0, 255)))


def check_flocker(source: Object, at: str, errs: list[FieldError]) -> None:
    name, uuid = source.get("datasetName"), source.get("datasetUUID")
    if not name and not uuid:
        errs.append(field_errors.required(at, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errs.append(field_errors.invalid(at, "resource", detail))
    if name and "/" in name:
        errs.append(field_errors.invalid(f"{at}.datasetName", name, "must not contain '/'"))


def check_cinder(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("volumeID")(source, at, errs)
    _secret_of(source, at, errs, "name")


def check_quobyte(source: Object, at: str, errs: list[FieldError]) -> None:
    registry = source.get("registry")
    pairs = "must be a host:port pair or multiple pairs separated by commas"
    if not registry:
        errs.append(field_errors.required(f"{at}.registry", pairs))
    elif len(source.get("tenant") or "") >= 65:
        detail = "must be a UUID and may not exceed a length of 64 characters"
        errs.append(field_errors.required(f"{at}.tenant", detail))
    else:
        wrong = [pair for pair in registry.split(",") if pair.count(":") != 1]
        errs.extend(field_errors.invalid(f"{at}.registry", registry, pairs) for _ in wrong)
    require_fields("volume")(source, at, errs)


def check_flex(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("driver")(source, at, errs)
    for key in source.get("options") or {}:
        domain = "." + key.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errs.append(field_errors.invalid(f"{at}.options[{key}]", key, detail))


def check_azure_disk(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("diskName", "diskURI")(source, at, errs)
    checks.optional_enum(source.get("cachingMode"), ("None", "ReadOnly", "ReadWrite"), f"{at}.cachingMode", errs)
    kind, uri = source.get("kind"), source.get("diskURI") or ""
    checks.optional_enum(kind, ("Dedicated", "Managed", "Shared"), f"{at}.kind", errs)
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        form = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        errs.append(field_errors.not_supported(f"{at}.diskURI", uri, [form]))
    if kind is not None and kind != "Managed" and not uri.startswith("https://"):
        form = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        errs.append(field_errors.not_supported(f"{at}.diskURI", uri, [form]))


def check_storageos(source: Object, at: str, errs: list[FieldError]) -> None:
    name, namespace = source.get("volumeName"), source.get("volumeNamespace")
    if not name:
        errs.append(field_errors.required(f"{at}.volumeName"))
    else:
        checks.report_problems(names.label_problems(name), f"{at}.volumeName", name, errs)
    if namespace:
        checks.report_problems(names.label_problems(namespace), f"{at}.volumeNamespace", namespace, errs)
    _secret_of(source, at, errs, "name")


def check_driver_name(name: str, field: str, errs: list[FieldError]) -> None:
    """Check the name of a CSI driver: a domain in any case, at most 63 characters."""
    if not name:
        errs.append(field_errors.required(field))
    if len(name) > 63:
        errs.append(field_errors.too_long(field, 63))
    checks.report_problems(names.subdomain_problems(name.lower()), field, name, errs)


def check_csi(source: Object, at: str, errs: list[FieldError]) -> None:
    check_driver_name(source.get("driver") or "", f"{at}.driver", errs)
    reference = source.get("nodePublishSecretRef")
    if reference is not None:
        name = reference.get("name")
        if not name:
            errs.append(field_errors.required(f"{at}.nodePublishSecretRef.name"))
        else:
            checks.report_problems(names.subdomain_problems(name), f"{at}.name", name, errs)


# In upstream's order: if a volume has several sources, the first is validated and the others are errors.
POD_SOURCES: dict[str, Check] = {
    "emptyDir": check_empty_dir,
    "hostPath": check_host_path,
    "gitRepo": check_git_repo,
    "gcePersistentDisk": check_gce,
    "awsElasticBlockStore": check_aws,
    "secret": _check_keyed("secretName"),
    "nfs": check_nfs,
    "iscsi": check_iscsi,
    "glusterfs": require_fields("endpoints", "path"),
    "flocker": check_flocker,
    "persistentVolumeClaim": require_fields("claimName"),
    "rbd": require_fields("monitors", "image"),
    "cinder": check_cinder,
    "cephfs": require_fields("monitors"),
    "quobyte": check_quobyte,
    "fc": check_fc,
    "flexVolume": check_flex,
    "configMap": _check_keyed("name"),
    "azureFile": require_fields("secretName", "shareName"),
    "vsphereVolume": require_fields("volumePath"),
    "photonPersistentDisk": require_fields("pdID"),
    "portworxVolume": require_fields("volumeID"),
    "azureDisk": check_azure_disk,
    "storageos": check_storageos,
    "scaleIO": require_fields("gateway", "system", "volumeName"),
    "csi": check_csi,
}


def _check_csi_volume(source: Object, at: str, errs: list[FieldError]) -> None:
    check_driver_name(source.get("driver") or "", f"{at}.driver", errs)
    require_fields("volumeHandle")(source, at, errs)
    for field in (
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ):
        reference = source.get(field)
        if reference is None:
            continue
        for part, problems in (("name", names.subdomain_problems), ("namespace", names.label_problems)):
            value = reference.get(part)
            if not value:
                errs.append(field_errors.required(f"{at}.{field}.{part}"))
            else:
                checks.report_problems(problems(value), f"{at}.{field}.{part}", value, errs)


def _with_secret_namespace(check: Check) -> Check:
    def both(source: Object, at: str, errs: list[FieldError]) -> None:
        check(source, at, errs)
        _secret_of(source, at, errs, "namespace")

    return both


def _check_glusterfs_volume(source: Object, at: str, errs: list[FieldError]) -> None:
    require_fields("endpoints", "path")(source, at, errs)
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        errs.append(field_errors.invalid(f"{at}.endpointsNamespace", namespace, detail))
    elif namespace is not None:
        checks.report_problems(names.label_problems(namespace), f"{at}.endpointsNamespace", namespace, errs)


VOLUME_SOURCES: dict[str, Check] = {
    "hostPath": check_host_path,
    "gcePersistentDisk": check_gce,
    "awsElasticBlockStore": check_aws,
    "glusterfs": _check_glusterfs_volume,
    "flocker": check_flocker,
    "nfs": check_nfs,
    "rbd": require_fields("monitors", "image"),
    "quobyte": check_quobyte,
    "cephfs": require_fields("monitors"),
    "iscsi": check_iscsi,
    "cinder": _with_secret_namespace(check_cinder),
    "fc": check_fc,
    "flexVolume": check_flex,
    "azureFile": require_fields("secretName", "shareName"),
    "vsphereVolume": require_fields("volumePath"),
    "photonPersistentDisk": require_fields("pdID"),
    "portworxVolume": require_fields("volumeID"),
    "azureDisk": check_azure_disk,
    "scaleIO": require_fields("gateway", "system", "volumeName"),
    "local": check_local,
    "storageos": _with_secret_namespace(check_storageos),
    "csi": _check_csi_volume,
}

# names of sources in messages where they differ from the field
NAMES_IN_MESSAGES = {"gcePersistentDisk": "persistentDisk"}
NAMES_IF_FORBIDDEN = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
