"""What makes each built-in kind different: (group, plural) -> behaviour. A kind not here has nothing special."""

from __future__ import annotations

from torchyard.api.access import behaviour as access
from torchyard.api.access import policies, requests, webhooks
from torchyard.api.behaviour import Behaviour
from torchyard.api.cluster import behaviour as cluster
from torchyard.api.device import behaviour as device
from torchyard.api.event import behaviour as event
from torchyard.api.job import behaviour as job
from torchyard.api.pod import behaviour as pod
from torchyard.api.quota import behaviour as quota
from torchyard.api.service import addresses
from torchyard.api.service import behaviour as service
from torchyard.api.volume import behaviour as volume
from torchyard.api.workload import behaviour as workload
from torchyard.api.workload.autoscaler import AutoscalerBehaviour
from torchyard.api.workload.budget import BudgetBehaviour

_ADMISSION = "admissionregistration.k8s.io"
_NETWORKING = "networking.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"

BEHAVIOURS: dict[tuple[str, str], Behaviour] = {
    ("", "configmaps"): cluster.ConfigMapBehaviour(),
    ("", "endpoints"): service.EndpointsBehaviour(),
    ("", "events"): event.EventBehaviour(),
    ("", "limitranges"): quota.LimitRangeBehaviour(),
    ("", "namespaces"): cluster.NamespaceBehaviour(),
    ("", "nodes"): cluster.NodeBehaviour(),
    ("", "persistentvolumeclaims"): volume.ClaimBehaviour(),
    ("", "persistentvolumes"): volume.VolumeBehaviour(),
    ("", "pods"): pod.PodBehaviour(),
    ("", "podtemplates"): pod.PodTemplateBehaviour(),
    ("", "replicationcontrollers"): workload.ReplicationControllerBehaviour(),
    ("", "resourcequotas"): quota.QuotaBehaviour(),
    ("", "secrets"): cluster.SecretBehaviour(),
    ("", "serviceaccounts"): cluster.ServiceAccountBehaviour(),
    ("", "services"): service.ServiceBehaviour(),
    (_ADMISSION, "mutatingwebhookconfigurations"): webhooks.MutatingWebhookBehaviour(),
    (_ADMISSION, "validatingadmissionpolicies"): policies.AdmissionPolicyBehaviour(),
    (_ADMISSION, "validatingadmissionpolicybindings"): policies.AdmissionPolicyBindingBehaviour(),
    (_ADMISSION, "validatingwebhookconfigurations"): webhooks.ValidatingWebhookBehaviour(),
    ("apiregistration.k8s.io", "apiservices"): webhooks.APIServiceBehaviour(),
    ("apps", "controllerrevisions"): workload.ControllerRevisionBehaviour(),
    ("apps", "daemonsets"): workload.DaemonSetBehaviour(),
    ("apps", "deployments"): workload.DeploymentBehaviour(),
    ("apps", "replicasets"): workload.ReplicaSetBehaviour(),
    ("apps", "statefulsets"): workload.StatefulSetBehaviour(),
    ("autoscaling", "horizontalpodautoscalers"): AutoscalerBehaviour(),
    ("batch", "cronjobs"): job.CronJobBehaviour(),
    ("batch", "jobs"): job.JobBehaviour(),
    ("certificates.k8s.io", "certificatesigningrequests"): requests.SigningRequestBehaviour(),
    ("coordination.k8s.io", "leases"): cluster.LeaseBehaviour(),
    ("discovery.k8s.io", "endpointslices"): service.EndpointSliceBehaviour(),
    ("events.k8s.io", "events"): event.NewEventBehaviour(),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): requests.FlowSchemaBehaviour(),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): requests.PriorityLevelBehaviour(),
    (_NETWORKING, "ingressclasses"): service.IngressClassBehaviour(),
    (_NETWORKING, "ingresses"): service.IngressBehaviour(),
    (_NETWORKING, "ipaddresses"): addresses.IPAddressBehaviour(),
    (_NETWORKING, "networkpolicies"): service.NetworkPolicyBehaviour(),
    (_NETWORKING, "servicecidrs"): addresses.ServiceCIDRBehaviour(),
    ("node.k8s.io", "runtimeclasses"): cluster.RuntimeClassBehaviour(),
    ("policy", "poddisruptionbudgets"): BudgetBehaviour(),
    (_RBAC, "clusterrolebindings"): access.ClusterRoleBindingBehaviour(),
    (_RBAC, "clusterroles"): access.ClusterRoleBehaviour(),
    (_RBAC, "rolebindings"): access.RoleBindingBehaviour(),
    (_RBAC, "roles"): access.RoleBehaviour(),
    ("resource.k8s.io", "deviceclasses"): device.DeviceClassBehaviour(),
    ("resource.k8s.io", "resourceclaims"): device.ResourceClaimBehaviour(),
    ("resource.k8s.io", "resourceclaimtemplates"): device.ResourceClaimTemplateBehaviour(),
    ("resource.k8s.io", "resourceslices"): device.ResourceSliceBehaviour(),
    ("scheduling.k8s.io", "priorityclasses"): cluster.PriorityClassBehaviour(),
    (_STORAGE, "csidrivers"): volume.DriverBehaviour(),
    (_STORAGE, "csinodes"): volume.CSINodeBehaviour(),
    (_STORAGE, "csistoragecapacities"): volume.CapacityBehaviour(),
    (_STORAGE, "storageclasses"): volume.StorageClassBehaviour(),
    (_STORAGE, "volumeattachments"): volume.AttachmentBehaviour(),
    (_STORAGE, "volumeattributesclasses"): volume.AttributesClassBehaviour(),
}
