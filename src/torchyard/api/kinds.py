"""The strategy of each built-in kind: (group, plural) -> Strategy. Kinds that are not listed use the base class."""

from __future__ import annotations

from torchyard.api.access import certificate_requests, flow_control, policies, webhooks
from torchyard.api.access import strategy as access
from torchyard.api.cluster import strategy as cluster
from torchyard.api.device import strategy as device
from torchyard.api.event import strategy as event
from torchyard.api.job import strategy as job
from torchyard.api.pod import strategy as pod
from torchyard.api.quota import strategy as quota
from torchyard.api.service import addresses
from torchyard.api.service import strategy as service
from torchyard.api.strategy import Strategy
from torchyard.api.volume import strategy as volume
from torchyard.api.workload import strategy as workload
from torchyard.api.workload.autoscaler import HorizontalPodAutoscalerStrategy
from torchyard.api.workload.budget import PodDisruptionBudgetStrategy

_ADMISSION = "admissionregistration.k8s.io"
_NETWORKING = "networking.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"

STRATEGIES: dict[tuple[str, str], Strategy] = {
    ("", "configmaps"): cluster.ConfigMapStrategy(),
    ("", "endpoints"): service.EndpointsStrategy(),
    ("", "events"): event.EventStrategy(),
    ("", "limitranges"): quota.LimitRangeStrategy(),
    ("", "namespaces"): cluster.NamespaceStrategy(),
    ("", "nodes"): cluster.NodeStrategy(),
    ("", "persistentvolumeclaims"): volume.PersistentVolumeClaimStrategy(),
    ("", "persistentvolumes"): volume.PersistentVolumeStrategy(),
    ("", "pods"): pod.PodStrategy(),
    ("", "podtemplates"): pod.PodTemplateStrategy(),
    ("", "replicationcontrollers"): workload.ReplicationControllerStrategy(),
    ("", "resourcequotas"): quota.ResourceQuotaStrategy(),
    ("", "secrets"): cluster.SecretStrategy(),
    ("", "serviceaccounts"): cluster.ServiceAccountStrategy(),
    ("", "services"): service.ServiceStrategy(),
    (_ADMISSION, "mutatingwebhookconfigurations"): webhooks.MutatingWebhookStrategy(),
    (_ADMISSION, "validatingadmissionpolicies"): policies.ValidatingAdmissionPolicyStrategy(),
    (_ADMISSION, "validatingadmissionpolicybindings"): policies.ValidatingAdmissionPolicyBindingStrategy(),
    (_ADMISSION, "validatingwebhookconfigurations"): webhooks.ValidatingWebhookStrategy(),
    ("apiregistration.k8s.io", "apiservices"): webhooks.APIServiceStrategy(),
    ("apps", "controllerrevisions"): workload.ControllerRevisionStrategy(),
    ("apps", "daemonsets"): workload.DaemonSetStrategy(),
    ("apps", "deployments"): workload.DeploymentStrategy(),
    ("apps", "replicasets"): workload.ReplicaSetStrategy(),
    ("apps", "statefulsets"): workload.StatefulSetStrategy(),
    ("autoscaling", "horizontalpodautoscalers"): HorizontalPodAutoscalerStrategy(),
    ("batch", "cronjobs"): job.CronJobStrategy(),
    ("batch", "jobs"): job.JobStrategy(),
    ("certificates.k8s.io", "certificatesigningrequests"): certificate_requests.CertificateSigningRequestStrategy(),
    ("coordination.k8s.io", "leases"): cluster.LeaseStrategy(),
    ("discovery.k8s.io", "endpointslices"): service.EndpointSliceStrategy(),
    ("events.k8s.io", "events"): event.EventsV1Strategy(),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): flow_control.FlowSchemaStrategy(),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): flow_control.PriorityLevelConfigurationStrategy(),
    (_NETWORKING, "ingressclasses"): service.IngressClassStrategy(),
    (_NETWORKING, "ingresses"): service.IngressStrategy(),
    (_NETWORKING, "ipaddresses"): addresses.IPAddressStrategy(),
    (_NETWORKING, "networkpolicies"): service.NetworkPolicyStrategy(),
    (_NETWORKING, "servicecidrs"): addresses.ServiceCIDRStrategy(),
    ("node.k8s.io", "runtimeclasses"): cluster.RuntimeClassStrategy(),
    ("policy", "poddisruptionbudgets"): PodDisruptionBudgetStrategy(),
    (_RBAC, "clusterrolebindings"): access.ClusterRoleBindingStrategy(),
    (_RBAC, "clusterroles"): access.ClusterRoleStrategy(),
    (_RBAC, "rolebindings"): access.RoleBindingStrategy(),
    (_RBAC, "roles"): access.RoleStrategy(),
    ("resource.k8s.io", "deviceclasses"): device.DeviceClassStrategy(),
    ("resource.k8s.io", "resourceclaims"): device.ResourceClaimStrategy(),
    ("resource.k8s.io", "resourceclaimtemplates"): device.ResourceClaimTemplateStrategy(),
    ("resource.k8s.io", "resourceslices"): device.ResourceSliceStrategy(),
    ("scheduling.k8s.io", "priorityclasses"): cluster.PriorityClassStrategy(),
    (_STORAGE, "csidrivers"): volume.CSIDriverStrategy(),
    (_STORAGE, "csinodes"): volume.CSINodeStrategy(),
    (_STORAGE, "csistoragecapacities"): volume.CSIStorageCapacityStrategy(),
    (_STORAGE, "storageclasses"): volume.StorageClassStrategy(),
    (_STORAGE, "volumeattachments"): volume.VolumeAttachmentStrategy(),
    (_STORAGE, "volumeattributesclasses"): volume.VolumeAttributesClassStrategy(),
}
