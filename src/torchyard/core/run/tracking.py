"""Links to the experiment trackers that the environment of a job names. The console has the same table.

Only http and https: the author of a job chooses these values, and people click on them.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

from torchyard.api.objects import Object
from torchyard.core.run.program import pod_specs

# By tracker: the variables whose value is a link, the first that is set counts.
TRACKERS = {
    "TensorBoard": ("TENSORBOARD_URL",),
    "MLflow": ("MLFLOW_TRACKING_URI",),
    "Weights & Biases": ("WANDB_RUN_URL", "WANDB_BASE_URL"),
}
_is_link = re.compile(r"https?://[^\s]+", re.IGNORECASE).fullmatch
_WANDB = "https://wandb.ai"


class TrackingLink(NamedTuple):
    tracker: str
    url: str


def tracking_links(job: Object) -> tuple[TrackingLink, ...]:
    """The links of a job, from the values of variables in its pod templates; other sources of variables are secret."""
    variables: dict[str, str] = {}
    for spec in pod_specs(job):
        for container in spec.get("containers") or ():
            for variable in container.get("env") or ():
                if variable.get("value"):
                    variables.setdefault(str(variable["name"]), str(variable["value"]))
    links = []
    for tracker, names in TRACKERS.items():
        value = next((variables[name] for name in names if name in variables), "")
        url = _wandb_project(variables) if tracker == "Weights & Biases" and "WANDB_RUN_URL" not in variables else ""
        if _is_link(url or value):
            links.append(TrackingLink(tracker, url or value))
    return tuple(links)


def _wandb_project(variables: dict[str, str]) -> str:
    """The page of the project, or of the run, that the variables of W&B's client name; empty if they do not."""
    words = [variables.get(f"WANDB_{name}", "") for name in ("ENTITY", "PROJECT")]
    if not all(words) or variables.get("WANDB_MODE") in ("offline", "disabled"):
        return ""
    base = variables.get("WANDB_BASE_URL", _WANDB).rstrip("/")
    base = _WANDB if base == "https://api.wandb.ai" else base  # its API, which shows no pages
    run = variables.get("WANDB_RUN_ID")
    return "/".join([base, *(quote(word, safe="") for word in words), *(["runs", quote(run, safe="")] if run else [])])
