"""Strategies of Pod and PodTemplate."""

from __future__ import annotations

from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.defaults import default_pod, default_template
from torchyard.api.pod.qos import quality_of_service
from torchyard.api.pod.scheduling import merge_match_keys
from torchyard.api.pod.updates import validate_pod_status, validate_pod_update
from torchyard.api.pod.validation import APP_ARMOR, all_containers, validate_pod, validate_template
from torchyard.api.pod.warnings import pod_warnings, template_warnings
from torchyard.api.strategy import Strategy


def drop_disabled_fields(spec: Object) -> None:
    """Drop fields behind feature gates that Kubernetes 1.34 disables by default, as its server does."""
    spec.pop("hostnameOverride", None)
    volumes = spec.get("volumes") or ()
    images = {volume.get("name") for volume in volumes if "image" in volume}
    if images:
        spec["volumes"] = [volume for volume in volumes if "image" not in volume]
    for volume in volumes:
        for source in (volume.get("projected") or {}).get("sources") or ():
            source.pop("clusterTrustBundle", None)
            source.pop("podCertificate", None)
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            container.pop("restartPolicyRules", None)
            if kind != "initContainers" or container.get("restartPolicy") != "Always":
                container.pop("restartPolicy", None)
            lifecycle = container.get("lifecycle")
            if lifecycle and lifecycle.pop("stopSignal", None) is not None and not lifecycle:
                del container["lifecycle"]
            if images and container.get("volumeMounts"):
                container["volumeMounts"] = [
                    mount for mount in container["volumeMounts"] if mount.get("name") not in images
                ]


def _profiles_from_annotations(spec: Object, annotations: dict[str, str]) -> None:
    """Convert the old AppArmor annotations to fields where the fields are not set."""
    if (spec.get("securityContext") or {}).get("appArmorProfile") is not None:
        return
    for _, _, container in all_containers(spec):
        named = annotations.get(f"{APP_ARMOR}{container.get('name')}")
        context = container.get("securityContext") or {}
        if named is None or context.get("appArmorProfile") is not None:
            continue
        kind, _, path = named.partition("/")
        profile = {"localhost": "Localhost", "runtime": "RuntimeDefault", "unconfined": "Unconfined"}.get(kind)
        if profile is not None:
            local = {"localhostProfile": path} if profile == "Localhost" else {}
            container["securityContext"] = {**context, "appArmorProfile": {"type": profile, **local}}


class PodStrategy(Strategy):
    validates_prefix_on_update = True
    warns_on_update = False
    returns_deleted = True
    graceful = True
    status_is_separate = True

    def default(self, obj: Object) -> None:
        default_pod(obj)

    def prepare_create(self, obj: Object) -> None:
        spec = obj["spec"]
        drop_disabled_fields(spec)
        if annotations := obj["metadata"].get("annotations"):
            _profiles_from_annotations(spec, annotations)
        obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(obj)}
        if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
            spec["terminationGracePeriodSeconds"] = 1
        if spec.get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": obj["metadata"].get("creationTimestamp"),
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        if spec.get("affinity") or spec.get("topologySpreadConstraints"):
            merge_match_keys(spec, obj["metadata"].get("labels") or {})

    def prepare_update(self, new: Object, old: Object) -> None:
        new["status"] = old.get("status") or {}
        drop_disabled_fields(new["spec"])

    def prepare_status(self, new: Object, old: Object) -> None:
        # the status subresource also updates labels, annotations and finalizers, but not owners
        new["spec"] = old["spec"]
        meta, before = new["metadata"], old["metadata"]
        for field in ("ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"):
            if field in before:
                meta[field] = before[field]
            else:
                meta.pop(field, None)
        # the QoS class is immutable
        status, was = new.setdefault("status", {}), old.get("status") or {}
        if not status.get("qosClass") and was.get("qosClass"):
            status["qosClass"] = was["qosClass"]

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_pod(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validate_pod_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validate_pod_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        return pod_warnings(obj)

    def selectable(self, obj: Object) -> dict[str, str]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        ip = status.get("podIP") or next((pod_ip.get("ip") or "" for pod_ip in status.get("podIPs") or ()), "")
        return {
            "spec.nodeName": spec.get("nodeName") or "",
            "spec.restartPolicy": spec.get("restartPolicy") or "",
            "spec.schedulerName": spec.get("schedulerName") or "",
            "spec.serviceAccountName": spec.get("serviceAccountName") or "",
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase") or "",
            "status.podIP": ip,
            "status.podIPs": ip,
            "status.nominatedNodeName": status.get("nominatedNodeName") or "",
        }


class PodTemplateStrategy(Strategy):
    returns_deleted = True
    generation_fields = ("template",)

    def default(self, obj: Object) -> None:
        default_template(obj.setdefault("template", {}))

    def prepare_create(self, obj: Object) -> None:
        drop_disabled_fields(obj["template"]["spec"])

    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        validate_template(obj["template"], "template", errs)
        return errs

    def warnings(self, obj: Object) -> list[str]:
        return template_warnings(obj["template"], "template")
