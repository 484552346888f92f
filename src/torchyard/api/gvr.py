"""The GroupVersionResource of each built-in kind that more than one package reads or writes."""

from __future__ import annotations

from torchyard.api.group_version import GroupVersionResource

PODS = GroupVersionResource("", "v1", "pods")
SERVICES = GroupVersionResource("", "v1", "services")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SECRETS = GroupVersionResource("", "v1", "secrets")
SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
PERSISTENT_VOLUME_CLAIMS = GroupVersionResource("", "v1", "persistentvolumeclaims")
EVENTS = GroupVersionResource("", "v1", "events")
LIMIT_RANGES = GroupVersionResource("", "v1", "limitranges")
RESOURCE_QUOTAS = GroupVersionResource("", "v1", "resourcequotas")
NODES = GroupVersionResource("", "v1", "nodes", namespaced=False)
NAMESPACES = GroupVersionResource("", "v1", "namespaces", namespaced=False)
PERSISTENT_VOLUMES = GroupVersionResource("", "v1", "persistentvolumes", namespaced=False)
STORAGE_CLASSES = GroupVersionResource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
RUNTIME_CLASSES = GroupVersionResource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)
ENDPOINTS = GroupVersionResource("", "v1", "endpoints")
JOBS = GroupVersionResource("batch", "v1", "jobs")
CRON_JOBS = GroupVersionResource("batch", "v1", "cronjobs")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
REPLICA_SETS = GroupVersionResource("apps", "v1", "replicasets")
STATEFUL_SETS = GroupVersionResource("apps", "v1", "statefulsets")
DAEMON_SETS = GroupVersionResource("apps", "v1", "daemonsets")
CONTROLLER_REVISIONS = GroupVersionResource("apps", "v1", "controllerrevisions")
REPLICATION_CONTROLLERS = GroupVersionResource("", "v1", "replicationcontrollers")
CERTIFICATE_SIGNING_REQUESTS = GroupVersionResource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", namespaced=False
)
SERVICE_CIDRS = GroupVersionResource("networking.k8s.io", "v1", "servicecidrs", namespaced=False)
IP_ADDRESSES = GroupVersionResource("networking.k8s.io", "v1", "ipaddresses", namespaced=False)
SUBJECT_ACCESS_REVIEWS = GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
POD_DISRUPTION_BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
ENDPOINT_SLICES = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
LEASES = GroupVersionResource("coordination.k8s.io", "v1", "leases")
HORIZONTAL_POD_AUTOSCALERS = GroupVersionResource("autoscaling", "v2", "horizontalpodautoscalers")
CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
