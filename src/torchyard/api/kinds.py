"""What makes each built-in kind different: (group, plural) -> behaviour. A kind not here has nothing special."""

from __future__ import annotations

from torchyard.api.access.behaviour import RbacBehaviour
from torchyard.api.behaviour import Behaviour
from torchyard.api.job.behaviour import CronJobBehaviour, JobBehaviour
from torchyard.api.pod.behaviour import PodBehaviour, PodTemplateBehaviour

BEHAVIOURS: dict[tuple[str, str], Behaviour] = {
    ("", "pods"): PodBehaviour(),
    ("", "podtemplates"): PodTemplateBehaviour(),
    ("batch", "jobs"): JobBehaviour(),
    ("batch", "cronjobs"): CronJobBehaviour(),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "clusterroles"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "rolebindings"): RbacBehaviour(),
    ("rbac.authorization.k8s.io", "roles"): RbacBehaviour(),
}
