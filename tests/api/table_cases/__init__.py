"""Objects in every state that a table row can show, for the comparison with kube-apiserver.

Each case is what a client would create. `status` is written through the status subresource if there is one, and
`terminating` objects are deleted while a finalizer holds them.
"""

from __future__ import annotations

from tests.api.table_cases.access import ADMISSION, BINDINGS, RBAC
from tests.api.table_cases.cluster import CORE, EVENTS, NODES, QUOTAS
from tests.api.table_cases.others import NAMESPACED_OTHERS, OTHERS
from tests.api.table_cases.pods import PODS
from tests.api.table_cases.services import ENDPOINT_SLICES, ENDPOINTS, INGRESSES, NETWORK_POLICIES, NETWORKING, SERVICES
from tests.api.table_cases.storage import CLAIMS, STORAGE, VOLUMES
from tests.api.table_cases.workloads import AUTOSCALERS, BUDGETS, CRON_JOBS, JOBS, WORKLOADS

from torchyard.api.objects import Object

# "group/version plural" -> cases
CASES: dict[str, list[Object]] = {
    "v1 pods": PODS,
    "batch/v1 jobs": JOBS,
    "batch/v1 cronjobs": CRON_JOBS,
    **{f"apps/v1 {plural}": cases for plural, cases in WORKLOADS.items()},
    "autoscaling/v2 horizontalpodautoscalers": AUTOSCALERS,
    "policy/v1 poddisruptionbudgets": BUDGETS,
    "v1 services": SERVICES,
    "v1 endpoints": ENDPOINTS,
    "discovery.k8s.io/v1 endpointslices": ENDPOINT_SLICES,
    "networking.k8s.io/v1 ingresses": INGRESSES,
    "networking.k8s.io/v1 networkpolicies": NETWORK_POLICIES,
    "v1 persistentvolumeclaims": CLAIMS,
    "v1 events": EVENTS,
    "v1 resourcequotas": QUOTAS,
    **{f"v1 {plural}": cases for plural, cases in CORE.items()},
    **NAMESPACED_OTHERS,
}
CLUSTER_CASES: dict[str, list[Object]] = {
    **{f"networking.k8s.io/v1 {plural}": cases for plural, cases in NETWORKING.items()},
    "v1 persistentvolumes": VOLUMES,
    **{f"storage.k8s.io/v1 {plural}": cases for plural, cases in STORAGE.items()},
    "v1 nodes": NODES,
    f"{RBAC}/v1 clusterrolebindings": BINDINGS,
    **{f"admissionregistration.k8s.io/v1 {plural}": cases for plural, cases in ADMISSION.items()},
    **OTHERS,
}
