"""Where a volume comes from: the checks of every volume source, in a pod and in a PersistentVolume.

Most sources only need some of their fields; those are a line in a table. Fields are named as upstream names them in
its messages, its slips included (`downwarAPI`, `cephFS`, `persistentDisk`), since that is what people search for.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torchyard.api import checks, faults, names, quantity
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault

Check = Callable[[Object, str, list[Fault]], None]

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


def needs(*fields: str) -> Check:
    """A source that must have these fields and knows no other rule."""

    def check(source: Object, at: str, found: list[Fault]) -> None:
        found.extend(faults.required(f"{at}.{name}") for name in fields if not source.get(name))

    return check


def _secret_of(source: Object, at: str, found: list[Fault], *fields: str) -> None:
    reference = source.get("secretRef")
    if reference is not None:
        found.extend(faults.required(f"{at}.secretRef.{name}") for name in fields if not reference.get(name))


def check_empty_dir(source: Object, at: str, found: list[Fault]) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and quantity.parse(limit).nano < 0:
        found.append(faults.forbidden(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity"))


def check_host_path(source: Object, at: str, found: list[Fault]) -> None:
    path = source.get("path")
    if not path:
        found.append(faults.required(f"{at}.path"))
        return
    checks.no_backsteps(path, f"{at}.path", found)
    checks.choice(source.get("type"), _HOST_PATH_TYPES, f"{at}.type", found)


def check_local(source: Object, at: str, found: list[Fault]) -> None:
    path = source.get("path")
    if not path:
        found.append(faults.required(f"{at}.path"))
        return
    checks.no_backsteps(path, f"{at}.path", found)


def check_git_repo(source: Object, at: str, found: list[Fault]) -> None:
    needs("repository")(source, at, found)
    checks.descending_path(source.get("directory") or "", f"{at}.directory", found)


def _partition(source: Object, at: str, found: list[Fault]) -> None:
    if not 0 <= (source.get("partition") or 0) <= 255:
        found.append(faults.invalid(f"{at}.partition", source["partition"], checks.within(1, 255)))


def check_gce(source: Object, at: str, found: list[Fault]) -> None:
    needs("pdName")(source, at, found)
    _partition(source, at, found)


def check_aws(source: Object, at: str, found: list[Fault]) -> None:
    needs("volumeID")(source, at, found)
    _partition(source, at, found)


def check_nfs(source: Object, at: str, found: list[Fault]) -> None:
    needs("server", "path")(source, at, found)
    path = source.get("path") or ""
    if not path.startswith("/"):
        found.append(faults.invalid(f"{at}.path", path, "must be an absolute path"))


def check_key_to_path(item: Object, at: str, found: list[Fault]) -> None:
    path = item.get("path") or ""
    needs("key", "path")(item, at, found)
    checks.unreserved_path(path, f"{at}.path", found)
    checks.file_mode(item.get("mode"), f"{at}.mode", found)


def _check_keyed(name: str) -> Check:
    def check(source: Object, at: str, found: list[Fault]) -> None:
        if not source.get(name):
            found.append(faults.required(f"{at}.{name}"))
        checks.file_mode(source.get("defaultMode"), f"{at}.defaultMode", found)
        for index, item in enumerate(source.get("items") or ()):
            check_key_to_path(item, f"{at}.items[{index}]", found)

    return check


_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.([0-9A-Za-z.-]+)(:[^,;*&$|\s]+)$", re.ASCII)
_EUI = re.compile(r"^eui.[0-9A-Za-z]{16}$", re.ASCII)
_NAA = re.compile(r"^naa.[0-9A-Za-z]{32}$", re.ASCII)
_WELL_KNOWN_INITIATORS = {"iqn": _IQN, "eui": _EUI, "naa": _NAA}


def _initiator(name: str, field: str, found: list[Fault]) -> None:
    pattern = _WELL_KNOWN_INITIATORS.get(name[:3])
    if pattern is None:
        found.append(faults.invalid(field, name, "must be valid format starting with iqn, eui, or naa"))
    elif not pattern.search(name):
        found.append(faults.invalid(field, name, "must be valid format"))


def check_iscsi(source: Object, at: str, found: list[Fault]) -> None:
    needs("targetPortal")(source, at, found)
    if not source.get("iqn"):
        found.append(faults.required(f"{at}.iqn"))
    else:
        _initiator(source["iqn"], f"{at}.iqn", found)
    lun = source.get("lun") or 0
    if not 0 <= lun <= 255:
        found.append(faults.invalid(f"{at}.lun", lun, checks.within(0, 255)))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and not source.get("secretRef"):
        found.append(faults.required(f"{at}.secretRef"))
    if source.get("initiatorName") is not None:
        _initiator(source["initiatorName"], f"{at}.initiatorname", found)


def check_fc(source: Object, at: str, found: list[Fault]) -> None:
    targets, ids, lun = source.get("targetWWNs"), source.get("wwids"), source.get("lun")
    field = f"{at}.targetWWNs"
    if not targets and not ids:
        found.append(faults.required(field, "must specify either targetWWNs or wwids, but not both"))
    if targets and ids:
        found.append(faults.invalid(field, targets, "targetWWNs and wwids can not be specified simultaneously"))
    if targets and lun is None:
        found.append(faults.required(f"{at}.lun", "lun is required if targetWWNs is specified"))
    elif targets and lun is not None and not 0 <= lun <= 255:
        found.append(faults.invalid(f"{at}.lun", lun, checks.within(0, 255)))


def check_flocker(source: Object, at: str, found: list[Fault]) -> None:
    name, uuid = source.get("datasetName"), source.get("datasetUUID")
    if not name and not uuid:
        found.append(faults.required(at, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        found.append(faults.invalid(at, "resource", detail))
    if name and "/" in name:
        found.append(faults.invalid(f"{at}.datasetName", name, "must not contain '/'"))


def check_cinder(source: Object, at: str, found: list[Fault]) -> None:
    needs("volumeID")(source, at, found)
    _secret_of(source, at, found, "name")


def check_quobyte(source: Object, at: str, found: list[Fault]) -> None:
    registry = source.get("registry")
    pairs = "must be a host:port pair or multiple pairs separated by commas"
    if not registry:
        found.append(faults.required(f"{at}.registry", pairs))
    elif len(source.get("tenant") or "") >= 65:
        detail = "must be a UUID and may not exceed a length of 64 characters"
        found.append(faults.required(f"{at}.tenant", detail))
    else:
        wrong = [pair for pair in registry.split(",") if pair.count(":") != 1]
        found.extend(faults.invalid(f"{at}.registry", registry, pairs) for _ in wrong)
    needs("volume")(source, at, found)


def check_flex(source: Object, at: str, found: list[Fault]) -> None:
    needs("driver")(source, at, found)
    for key in source.get("options") or {}:
        domain = "." + key.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            found.append(faults.invalid(f"{at}.options[{key}]", key, detail))


def check_azure_disk(source: Object, at: str, found: list[Fault]) -> None:
    needs("diskName", "diskURI")(source, at, found)
    checks.choice(source.get("cachingMode"), ("None", "ReadOnly", "ReadWrite"), f"{at}.cachingMode", found)
    kind, uri = source.get("kind"), source.get("diskURI") or ""
    checks.choice(kind, ("Dedicated", "Managed", "Shared"), f"{at}.kind", found)
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        form = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        found.append(faults.not_supported(f"{at}.diskURI", uri, [form]))
    if kind is not None and kind != "Managed" and not uri.startswith("https://"):
        form = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        found.append(faults.not_supported(f"{at}.diskURI", uri, [form]))


def check_storageos(source: Object, at: str, found: list[Fault]) -> None:
    name, namespace = source.get("volumeName"), source.get("volumeNamespace")
    if not name:
        found.append(faults.required(f"{at}.volumeName"))
    else:
        checks.told(names.label_problems(name), f"{at}.volumeName", name, found)
    if namespace:
        checks.told(names.label_problems(namespace), f"{at}.volumeNamespace", namespace, found)
    _secret_of(source, at, found, "name")


def check_driver_name(name: str, field: str, found: list[Fault]) -> None:
    """The name of a CSI driver: a domain in any case, 63 characters at most."""
    if not name:
        found.append(faults.required(field))
    if len(name) > 63:
        found.append(faults.too_long(field, 63))
    checks.told(names.subdomain_problems(name.lower()), field, name, found)


def check_csi(source: Object, at: str, found: list[Fault]) -> None:
    check_driver_name(source.get("driver") or "", f"{at}.driver", found)
    reference = source.get("nodePublishSecretRef")
    if reference is not None:
        name = reference.get("name")
        if not name:
            found.append(faults.required(f"{at}.nodePublishSecretRef.name"))
        else:
            checks.told(names.subdomain_problems(name), f"{at}.name", name, found)


# In upstream's order: where a volume names several sources, the first is checked and the others are refused.
POD_SOURCES: dict[str, Check] = {
    "emptyDir": check_empty_dir,
    "hostPath": check_host_path,
    "gitRepo": check_git_repo,
    "gcePersistentDisk": check_gce,
    "awsElasticBlockStore": check_aws,
    "secret": _check_keyed("secretName"),
    "nfs": check_nfs,
    "iscsi": check_iscsi,
    "glusterfs": needs("endpoints", "path"),
    "flocker": check_flocker,
    "persistentVolumeClaim": needs("claimName"),
    "rbd": needs("monitors", "image"),
    "cinder": check_cinder,
    "cephfs": needs("monitors"),
    "quobyte": check_quobyte,
    "fc": check_fc,
    "flexVolume": check_flex,
    "configMap": _check_keyed("name"),
    "azureFile": needs("secretName", "shareName"),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": check_azure_disk,
    "storageos": check_storageos,
    "scaleIO": needs("gateway", "system", "volumeName"),
    "csi": check_csi,
}


def _check_csi_volume(source: Object, at: str, found: list[Fault]) -> None:
    check_driver_name(source.get("driver") or "", f"{at}.driver", found)
    needs("volumeHandle")(source, at, found)
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
                found.append(faults.required(f"{at}.{field}.{part}"))
            else:
                checks.told(problems(value), f"{at}.{field}.{part}", value, found)


def _with_secret_namespace(check: Check) -> Check:
    def both(source: Object, at: str, found: list[Fault]) -> None:
        check(source, at, found)
        _secret_of(source, at, found, "namespace")

    return both


def _check_glusterfs_volume(source: Object, at: str, found: list[Fault]) -> None:
    needs("endpoints", "path")(source, at, found)
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        found.append(faults.invalid(f"{at}.endpointsNamespace", namespace, detail))
    elif namespace is not None:
        checks.told(names.label_problems(namespace), f"{at}.endpointsNamespace", namespace, found)


VOLUME_SOURCES: dict[str, Check] = {
    "hostPath": check_host_path,
    "gcePersistentDisk": check_gce,
    "awsElasticBlockStore": check_aws,
    "glusterfs": _check_glusterfs_volume,
    "flocker": check_flocker,
    "nfs": check_nfs,
    "rbd": needs("monitors", "image"),
    "quobyte": check_quobyte,
    "cephfs": needs("monitors"),
    "iscsi": check_iscsi,
    "cinder": _with_secret_namespace(check_cinder),
    "fc": check_fc,
    "flexVolume": check_flex,
    "azureFile": needs("secretName", "shareName"),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": check_azure_disk,
    "scaleIO": needs("gateway", "system", "volumeName"),
    "local": check_local,
    "storageos": _with_secret_namespace(check_storageos),
    "csi": _check_csi_volume,
}

# how messages name a source, where that is not its field's name
SHOWN_AS = {"gcePersistentDisk": "persistentDisk"}
REFUSED_AS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
