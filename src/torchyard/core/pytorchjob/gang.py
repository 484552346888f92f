"""Gang scheduling: replicas that start together or not at all, by annotations or by a PodGroup."""

from __future__ import annotations

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.core.pytorchjob.view import EMBEDDED_GANG, VOLCANO, PyTorchJobSettings, PyTorchJobView
from torchyard.core.scheduling.schedule import GANG_NAME, GANG_SIZE
from torchyard.core.training.pod_groups import POD_GROUP_LABEL, SCHEDULER_PLUGINS_API, VOLCANO_API, VOLCANO_GROUP

VOLCANO_TASK = "volcano.sh/task-spec"


def _policy(view: PyTorchJobView) -> Object:
    return view.run_policy.get("schedulingPolicy") or {}


def is_volcano(settings: PyTorchJobSettings) -> bool:
    return settings.gang_scheduler.lower() == VOLCANO


def size(view: PyTorchJobView) -> int:
    """How many replicas must fit before any starts."""
    least = _policy(view).get("minAvailable")
    return view.total if least is None else int(least)


def gang_annotations(view: PyTorchJobView, settings: PyTorchJobSettings) -> dict[str, str]:
    """The annotations by which the plane's own scheduler recognizes a gang; only if the job asks for one."""
    if settings.gang_scheduler != EMBEDDED_GANG or _policy(view).get("minAvailable") is None:
        return {}
    return {GANG_NAME: view.name, GANG_SIZE: str(size(view))}


def has_other_scheduler(view: PyTorchJobView, kind: str, settings: PyTorchJobSettings) -> bool:
    """Whether a template names a scheduler other than the gang scheduler."""
    named = view.replicas[kind]["template"]["spec"].get("schedulerName")
    return settings.uses_pod_groups and bool(named) and named != _scheduler(settings)


def _scheduler(settings: PyTorchJobSettings) -> str:
    return VOLCANO if is_volcano(settings) else settings.gang_scheduler


def add_gang_metadata(view: PyTorchJobView, kind: str, pod: Object, settings: PyTorchJobSettings) -> None:
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["annotations"].update(gang_annotations(view, settings))
    if not settings.uses_pod_groups:
        return
    spec["schedulerName"] = spec.get("schedulerName") or _scheduler(settings)
    if is_volcano(settings):
        metadata["annotations"] |= {VOLCANO_GROUP: view.name, VOLCANO_TASK: kind.lower()}
    else:
        metadata["labels"][POD_GROUP_LABEL] = view.name


def pod_group(view: PyTorchJobView, owner: Object, settings: PyTorchJobSettings) -> Object:
    """The desired PodGroup. A queue that is already set is kept."""
    policy = _policy(view)
    spec: Object = {"minMember": size(view), "minResources": policy.get("minResources") or _resources(view)}
    if is_volcano(settings):
        current_queue = ((view.pod_group or {}).get("spec") or {}).get("queue")
        spec["queue"] = current_queue or policy.get("queue") or "default"
        if policy.get("priorityClass"):
            spec["priorityClassName"] = policy["priorityClass"]
    elif policy.get("scheduleTimeoutSeconds") is not None:
        spec["scheduleTimeoutSeconds"] = policy["scheduleTimeoutSeconds"]
    metadata: Object = {"name": view.name, "namespace": view.namespace, "ownerReferences": [owner]}
    annotations = {
        key: value
        for key, value in (view.job["metadata"].get("annotations") or {}).items()
        if key != names.RESTARTS  # it changes with every restart and means nothing to a scheduler
    }
    if annotations:
        metadata["annotations"] = annotations
    api_version = VOLCANO_API if is_volcano(settings) else SCHEDULER_PLUGINS_API
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def _resources(view: PyTorchJobView) -> dict[str, str]:
    """The requests of the first `size` replicas, Master first. Init containers do not count (upstream's rule)."""
    total: dict[str, int] = {}
    remaining = size(view)
    for spec in view.replicas.values():
        count = max(min(int(spec["replicas"]), remaining), 0)
        remaining -= count
        if not count:
            break
        for container in spec["template"]["spec"]["containers"]:
            resources = container.get("resources") or {}
            for name, amount in (resources.get("requests") or resources.get("limits") or {}).items():
                total[name] = total.get(name, 0) + count * quantity.parse(str(amount)).milli
    return {name: _format_milli(milli) for name, milli in sorted(total.items())}


def _format_milli(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def is_waiting(view: PyTorchJobView, settings: PyTorchJobSettings) -> bool:
    """Volcano admits the PodGroup first: no pod is created while it is Pending."""
    if not is_volcano(settings):
        return False
    reached = ((view.pod_group or {}).get("status") or {}).get("phase") or ""
    return reached in ("", "Pending")
