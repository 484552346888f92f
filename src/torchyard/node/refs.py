"""The resources a node reads and writes."""

from __future__ import annotations

from torchyard.kube.client import Ref

PODS = Ref("", "v1", "pods")
NODES = Ref("", "v1", "nodes", namespaced=False)
EVENTS = Ref("", "v1", "events")
SERVICES = Ref("", "v1", "services")
CONFIG_MAPS = Ref("", "v1", "configmaps")
SECRETS = Ref("", "v1", "secrets")
SERVICE_ACCOUNTS = Ref("", "v1", "serviceaccounts")
CLAIMS = Ref("", "v1", "persistentvolumeclaims")
VOLUMES = Ref("", "v1", "persistentvolumes", namespaced=False)
SLICES = Ref("discovery.k8s.io", "v1", "endpointslices")
LEASES = Ref("coordination.k8s.io", "v1", "leases")

BY_KIND = {
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "PersistentVolumeClaim": CLAIMS,
    "PersistentVolume": VOLUMES,
}
