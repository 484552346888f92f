"""Strategies of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers."""

from __future__ import annotations

from torchyard.api import names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.strategy import drop_disabled_fields
from torchyard.api.pod.warnings import template_warnings
from torchyard.api.status_subresource import StatusSubresourceStrategy
from torchyard.api.strategy import Strategy
from torchyard.api.workload import defaults, labels, status, validation
from torchyard.api.workload.templates import same_template

_ALL_REVISIONS = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
)


class _TemplateStrategy(StatusSubresourceStrategy):
    """A workload with a pod template at `spec.template`."""

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        self._drop(obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        self._drop(new)

    @staticmethod
    def _drop(obj: Object) -> None:
        template = obj["spec"].get("template")
        if template is not None:
            drop_disabled_fields(template["spec"])

    def warnings(self, obj: Object) -> list[str]:
        template = obj["spec"].get("template")
        return template_warnings(template, "spec.template") if template else []


class DeploymentStrategy(_TemplateStrategy):
    status_keeps = ("labels",)

    def default(self, obj: Object) -> None:
        defaults.default_deployment(obj)

    def is_new_generation(self, new: Object, old: Object) -> bool:
        # annotations count too: deployments once kept rollback data there
        annotations = (obj["metadata"].get("annotations") or {} for obj in (new, old))
        return super().is_new_generation(new, old) or next(annotations) != next(annotations)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_deployment(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_with_immutable_selector(validation.validate_deployment, new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return status.validate_deployment_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        return _name_warnings(obj) + super().warnings(obj)


def _name_warnings(obj: Object) -> list[str]:
    problems = names.label_problems(obj["metadata"].get("name") or "")
    if not problems:
        return []
    return [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        f"a DNS label is recommended: [{' '.join(problems)}]"
    ]


class ReplicaSetStrategy(_TemplateStrategy):
    validates_prefix_on_update = True

    def default(self, obj: Object) -> None:
        defaults.default_replica_set(obj)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        obj["status"] = {"replicas": 0}

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_replica_set(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_with_immutable_selector(validation.validate_replica_set, new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return status.validate_replica_set_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        return _name_warnings(obj) + super().warnings(obj)


class StatefulSetStrategy(_TemplateStrategy):
    name_rule = "label"

    def default(self, obj: Object) -> None:
        defaults.default_stateful_set(obj)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        obj["status"] = {"replicas": 0, "availableReplicas": 0}
        rolling = obj["spec"]["updateStrategy"].get("rollingUpdate")
        if rolling:
            # behind a feature gate that Kubernetes 1.34 disables by default
            rolling.pop("maxUnavailable", None)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_stateful_set(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_stateful_set_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return status.validate_stateful_set_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        warnings = super().warnings(obj)
        if (obj["spec"].get("revisionHistoryLimit") or 0) < 0:
            warnings.append(_ALL_REVISIONS)
        return warnings


class DaemonSetStrategy(_TemplateStrategy):
    validates_prefix_on_update = True

    def default(self, obj: Object) -> None:
        defaults.default_daemon_set(obj)
        # as in upstream, whose conversion writes it whenever it reads a daemon set, so the reader owns the field
        annotations = obj["metadata"].get("annotations") or {}
        if labels.TEMPLATE_GENERATION_ANNOTATION not in annotations:
            obj["metadata"]["annotations"] = {**annotations, labels.TEMPLATE_GENERATION_ANNOTATION: "0"}

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        counts = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        obj["status"] = dict.fromkeys(counts, 0)
        self._count(obj, 1)

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        was = _template_generation(old)
        changed = not same_template(old["spec"].get("template"), new["spec"].get("template"))
        self._count(new, was + 1 if changed else was)

    @staticmethod
    def _count(obj: Object, generation: int) -> None:
        """Count template changes: a field of old API versions, kept as an annotation."""
        annotations = dict(obj["metadata"].get("annotations") or {})
        annotations[labels.TEMPLATE_GENERATION_ANNOTATION] = str(generation)
        obj["metadata"]["annotations"] = annotations

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_daemon_set(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_with_immutable_selector(validation.validate_daemon_set, new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return status.validate_daemon_set_status(new, old)


def _template_generation(daemon_set: Object) -> int:
    """The annotation's number; as upstream, anything but a 64-bit integer counts as 0, and none as 1."""
    text = (daemon_set["metadata"].get("annotations") or {}).get(labels.TEMPLATE_GENERATION_ANNOTATION) or "1"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


class ReplicationControllerStrategy(_TemplateStrategy):
    validates_prefix_on_update = True
    default_propagation = "Orphan"

    def default(self, obj: Object) -> None:
        defaults.default_replication_controller(obj)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        obj["status"] = {"replicas": 0}

    def prepare_status(self, new: Object, old: Object) -> None:
        super().prepare_status(new, old)
        defaults.default_labels(new)  # a body without a spec has no template to take them from

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_replication_controller(obj)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return status.validate_replica_set_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        return _name_warnings(obj) + super().warnings(obj)

    def selectable(self, obj: Object) -> dict[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas") or 0)}


class ControllerRevisionStrategy(Strategy):
    generation_fields = None

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_revision(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_revision_update(new, old)
