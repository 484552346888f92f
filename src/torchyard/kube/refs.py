"""The resources that several parts read or write, each named once."""

from __future__ import annotations

from torchyard.kube.client import Ref

PODS = Ref("", "v1", "pods")
SERVICES = Ref("", "v1", "services")
CONFIG_MAPS = Ref("", "v1", "configmaps")
SECRETS = Ref("", "v1", "secrets")
SERVICE_ACCOUNTS = Ref("", "v1", "serviceaccounts")
CLAIMS = Ref("", "v1", "persistentvolumeclaims")
EVENTS = Ref("", "v1", "events")
QUOTAS = Ref("", "v1", "resourcequotas")
NODES = Ref("", "v1", "nodes", namespaced=False)
NAMESPACES = Ref("", "v1", "namespaces", namespaced=False)
VOLUMES = Ref("", "v1", "persistentvolumes", namespaced=False)
CLASSES = Ref("storage.k8s.io", "v1", "storageclasses", namespaced=False)
ENDPOINTS = Ref("", "v1", "endpoints")
JOBS = Ref("batch", "v1", "jobs")
CRON_JOBS = Ref("batch", "v1", "cronjobs")
SLICES = Ref("discovery.k8s.io", "v1", "endpointslices")
LEASES = Ref("coordination.k8s.io", "v1", "leases")
AUTOSCALERS = Ref("autoscaling", "v2", "horizontalpodautoscalers")
CLUSTER_ROLES = Ref("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
