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

BEHAVIOURS: dict[tuple[str, str], Behaviour] = {
    ("", "pods"): PodBehaviour(),
    ("", "podtemplates"): PodTemplateBehaviour(),
    ("", "services"): ServiceBehaviour(),
    ("", "endpoints"): EndpointsBehaviour(),
    ("discovery.k8s.io", "endpointslices"): EndpointSliceBehaviour(),
    ("networking.k8s.io", "ingresses"): IngressBehaviour(),
    ("networking.k8s.io", "ingressclasses"): IngressClassBehaviour(),
    ("networking.k8s.io", "networkpolicies"): NetworkPolicyBehaviour(),
    ("batch", "jobs"): JobBehaviour(),
    ("batch", "cronjobs"): CronJobBehaviour(),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "clusterroles"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "rolebindings"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "roles"): RbacBehaviour(),
}
