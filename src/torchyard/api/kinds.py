"""What makes each built-in kind different: (group, plural) -> behaviour. A kind not here has nothing special."""

from __future__ import annotations

from torchyard.api.access.behaviour import RbacBehaviour
from torchyard.api.behaviour import Behaviour
from torchyard.api.job.behaviour import CronJobBehaviour, JobBehaviour
from torchyard.api.pod.behaviour import PodBehaviour, PodTemplateBehaviour
from torchyard.api.service.behaviour import (
    EndpointsBehaviour,
    EndpointSliceBehaviour,
    IngressBehaviour,
    IngressClassBehaviour,
    NetworkPolicyBehaviour,
    ServiceBehaviour,
)
from torchyard.api.volume.behaviour import (
    AttachmentBehaviour,
    AttributesClassBehaviour,
    CapacityBehaviour,
    ClaimBehaviour,
    CSINodeBehaviour,
    DriverBehaviour,
    StorageClassBehaviour,
    VolumeBehaviour,
)
from torchyard.api.workload.behaviour import (
    ControllerRevisionBehaviour,
    DaemonSetBehaviour,
    DeploymentBehaviour,
    ReplicaSetBehaviour,
    ReplicationControllerBehaviour,
    StatefulSetBehaviour,
)

BEHAVIOURS: dict[tuple[str, str], Behaviour] = {
    ("", "pods"): PodBehaviour(),
    ("", "podtemplates"): PodTemplateBehaviour(),
    ("", "services"): ServiceBehaviour(),
    ("", "endpoints"): EndpointsBehaviour(),
    ("discovery.k8s.io", "endpointslices"): EndpointSliceBehaviour(),
    ("networking.k8s.io", "ingresses"): IngressBehaviour(),
    ("networking.k8s.io", "ingressclasses"): IngressClassBehaviour(),
    ("networking.k8s.io", "networkpolicies"): NetworkPolicyBehaviour(),
    ("", "persistentvolumes"): VolumeBehaviour(),
    ("", "persistentvolumeclaims"): ClaimBehaviour(),
    ("storage.k8s.io", "storageclasses"): StorageClassBehaviour(),
    ("storage.k8s.io", "volumeattributesclasses"): AttributesClassBehaviour(),
    ("storage.k8s.io", "csidrivers"): DriverBehaviour(),
    ("storage.k8s.io", "csinodes"): CSINodeBehaviour(),
    ("storage.k8s.io", "volumeattachments"): AttachmentBehaviour(),
    ("storage.k8s.io", "csistoragecapacities"): CapacityBehaviour(),
    ("", "replicationcontrollers"): ReplicationControllerBehaviour(),
    ("apps", "deployments"): DeploymentBehaviour(),
    ("apps", "replicasets"): ReplicaSetBehaviour(),
    ("apps", "statefulsets"): StatefulSetBehaviour(),
    ("apps", "daemonsets"): DaemonSetBehaviour(),
    ("apps", "controllerrevisions"): ControllerRevisionBehaviour(),
    ("batch", "jobs"): JobBehaviour(),
    ("batch", "cronjobs"): CronJobBehaviour(),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "clusterroles"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "rolebindings"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "roles"): RbacBehaviour(),
}
