"""What makes each built-in kind different: (group, plural) -> behaviour. A kind not here has nothing special."""

from __future__ import annotations

from torchyard.api.behaviour import Behaviour
from torchyard.api.job.behaviour import CronJobBehaviour, JobBehaviour
from torchyard.api.pod.behaviour import PodBehaviour, PodTemplateBehaviour

BEHAVIOURS: dict[tuple[str, str], Behaviour] = {
    ("", "pods"): PodBehaviour(),
    ("", "podtemplates"): PodTemplateBehaviour(),
    ("batch", "jobs"): JobBehaviour(),
    ("batch", "cronjobs"): CronJobBehaviour(),
}
