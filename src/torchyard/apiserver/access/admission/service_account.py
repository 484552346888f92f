"""ServiceAccount: every pod runs as an account of its namespace and finds the account's token mounted."""

from __future__ import annotations

from random import Random

from torchyard.api.names import generate_name
from torchyard.apiserver.access.admission.attributes import Attributes
from torchyard.apiserver.access.lookup import Object

DEFAULT = "default"
VOLUME_PREFIX = "kube-api-access-"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
MIRROR = "kubernetes.io/config.mirror"
# Tokens live an hour; the seven seconds tell the ones asked for by this rule from others in logs and metrics.
TOKEN_SECONDS = 3607
ROOT_CA = "kube-root-ca.crt"


def give_account(attributes: Attributes, random: Random) -> None:
    """Name the account of a new pod, take over its pull secrets, and mount its token."""
    if not attributes.is_for("pods") or _is_mirror(attributes.new):
        return
    spec, namespace = attributes.new["spec"], attributes.namespace
    name = spec.get("serviceAccountName") or DEFAULT
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    account = attributes.lookup.get("", "serviceaccounts", namespace, name)
    if account is None:
        raise attributes.refusal(
            f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        )
    if _wants_token(spec, account):
        _mount_token(spec, random)
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [dict(one) for one in account["imagePullSecrets"]]


def check_mirror(attributes: Attributes) -> None:
    """A mirror of a node's own pod uses nothing of the API's."""
    if not attributes.is_for("pods") or not _is_mirror(attributes.new):
        return
    spec = attributes.new["spec"]
    if spec.get("serviceAccountName"):
        raise attributes.refusal("a mirror pod may not reference service accounts")
    for volume in spec.get("volumes") or ():
        if volume.get("secret"):
            raise attributes.refusal("a mirror pod may not reference secrets")


def _is_mirror(pod: Object) -> bool:
    return MIRROR in (pod["metadata"].get("annotations") or {})


def _wants_token(spec: Object, account: Object) -> bool:
    for holder in (spec, account):
        wanted = holder.get("automountServiceAccountToken")
        if wanted is not None:
            return bool(wanted)
    return True


def _mount_token(spec: Object, random: Random) -> None:
    volumes = spec.get("volumes") or []
    has_one = next((one["name"] for one in volumes if one.get("name", "").startswith(VOLUME_PREFIX)), "")
    volume = has_one or generate_name(VOLUME_PREFIX, random)
    mounted = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.setdefault("volumeMounts", [])
        if any(one.get("mountPath") == MOUNT_PATH for one in mounts):
            continue
        mounts.append({"name": volume, "readOnly": True, "mountPath": MOUNT_PATH})
        mounted = True
    if mounted and not has_one:
        spec["volumes"] = [*volumes, _token_volume(volume)]


def _token_volume(name: str) -> Object:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
            ],
            "defaultMode": 0o644,
        },
    }
