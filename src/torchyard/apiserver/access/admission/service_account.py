"""ServiceAccount: every pod runs as a service account of its namespace, with the account's token mounted."""

from __future__ import annotations

from random import Random

from torchyard.api.names import generate_name
from torchyard.api.pod.admission import check_secret_references, mount_service_account, needs_service_account
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

VOLUME_PREFIX = "kube-api-access-"


def set_service_account(attributes: AdmissionAttributes, random: Random) -> None:
    """Set the service account of a new pod, copy its pull secrets, and mount its token."""
    if not attributes.is_for("pods"):
        return
    name, namespace = needs_service_account(attributes.new), attributes.namespace
    if not name:
        return
    account = attributes.lister.get("", "serviceaccounts", namespace, name)
    if account is None:
        raise attributes.forbidden_error(
            f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        )
    mount_service_account(attributes.new, account, volume_name=generate_name(VOLUME_PREFIX, random))
    check_secret_references(attributes.new, account)


def check_mirror_pod(attributes: AdmissionAttributes) -> None:
    """A mirror pod may not reference API objects."""
    if not attributes.is_for("pods") or needs_service_account(attributes.new):
        return
    spec = attributes.new["spec"]
    if spec.get("serviceAccountName"):
        raise attributes.forbidden_error("a mirror pod may not reference service accounts")
    if any(volume.get("secret") for volume in spec.get("volumes") or ()):
        raise attributes.forbidden_error("a mirror pod may not reference secrets")
