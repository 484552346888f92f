"""Defaults of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.pod.defaults import default_template
from torchyard.api.volume.defaults import default_claim

_HISTORY = 10


def _default_workload(obj: Object) -> Object:
    spec: Object = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    return spec


def _default(holder: Object, name: str, value: object) -> None:
    if holder.get(name) is None or holder[name] == "":
        holder[name] = value


def _default_amount(holder: Object, name: str, value: int | str) -> None:
    """Set a default of an int-or-string, of which an empty string is not one without a value but an invalid one."""
    if holder.get(name) is None:
        holder[name] = value


def default_deployment(deployment: Object) -> None:
    spec = _default_workload(deployment)
    _default(spec, "replicas", 1)
    strategy = spec.setdefault("strategy", {})
    _default(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        _default_amount(rolling, "maxUnavailable", "25%")
        _default_amount(rolling, "maxSurge", "25%")
        strategy["rollingUpdate"] = rolling
    _default(spec, "revisionHistoryLimit", _HISTORY)
    _default(spec, "progressDeadlineSeconds", 600)


def default_replica_set(replica_set: Object) -> None:
    _default(_default_workload(replica_set), "replicas", 1)


def default_stateful_set(stateful_set: Object) -> None:
    spec = _default_workload(stateful_set)
    _default(spec, "replicas", 1)
    _default(spec, "podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        if strategy.get("rollingUpdate") is None:
            strategy["rollingUpdate"] = {"partition": 0}
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        _default(strategy["rollingUpdate"], "partition", 0)
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    _default(retention, "whenDeleted", "Retain")
    _default(retention, "whenScaled", "Retain")
    spec["persistentVolumeClaimRetentionPolicy"] = retention
    _default(spec, "revisionHistoryLimit", _HISTORY)
    for claim in spec.get("volumeClaimTemplates") or ():
        default_claim(claim)
        claim.update(kind="PersistentVolumeClaim", apiVersion="v1")


def default_daemon_set(daemon_set: Object) -> None:
    spec = _default_workload(daemon_set)
    strategy = spec.setdefault("updateStrategy", {})
    _default(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        _default_amount(rolling, "maxUnavailable", 1)
        _default_amount(rolling, "maxSurge", 0)
        strategy["rollingUpdate"] = rolling
    elif (rolling := strategy.get("rollingUpdate")) is not None:
        _default_amount(rolling, "maxUnavailable", 0)
        _default_amount(rolling, "maxSurge", 0)
    _default(spec, "revisionHistoryLimit", _HISTORY)


def default_replication_controller(controller: Object) -> None:
    spec = controller.setdefault("spec", {})
    _default(spec, "replicas", 1)
    template = spec.get("template")
    if template is None:
        return
    default_template(template)
    own = template["metadata"].get("labels")
    if own and not spec.get("selector"):
        spec["selector"] = dict(own)
    default_labels(controller)


def default_labels(controller: Object) -> None:
    """Label a ReplicationController without labels as its pods. Upstream does so whenever it reads one."""
    template = controller["spec"].get("template") or {}
    own = (template.get("metadata") or {}).get("labels")
    if own and not controller["metadata"].get("labels"):
        controller["metadata"]["labels"] = dict(own)
