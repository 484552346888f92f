"""Everything that an installation consists of, as objects: the CRD, roles, the operator and its webhook. Pure.

`yard install` applies these; the plain manifests and the chart under deploy/ are generated from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from torchyard.api.access.user_roles import user_roles
from torchyard.api.jobset import names as jobset
from torchyard.api.jobset.crd import definition_object as jobset_definition
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.pytorchjob.crd import definition_object
from torchyard.api.queue.names import QUEUE_NAME
from torchyard.api.samples import PORT_NAME, PROXIED_NAME
from torchyard.api.trainjob import names as trainjob
from torchyard.api.trainjob.crd import definition_object as trainjob_definition
from torchyard.api.trainjob.runtime_crd import definition_objects as runtime_definitions
from torchyard.api.trainjob.runtimes import public_objects
from torchyard.operator import permissions
from torchyard.operator.settings import (
    DEFAULTS_WEBHOOK,
    HEALTH_PORT,
    JOBSET_DEFAULTS_WEBHOOK,
    LEASE,
    METRICS_PORT,
    NAME,
    NAMESPACE,
    SAMPLES_PORT,
    STATUS_PORT,
    TRAINJOB_DEFAULTS_WEBHOOK,
    WEBHOOK,
    WEBHOOK_PORT,
    WEBHOOK_SECRET,
)

NAME_LABEL = "app.kubernetes.io/name"
LABELS = {NAME_LABEL: NAME, "app.kubernetes.io/part-of": "torchyard"}
_SELECTOR = {NAME_LABEL: NAME}
_PYTORCHJOBS = (names.GROUP, names.VERSION, names.PLURAL)
_JOBSETS = (jobset.GROUP, jobset.VERSION, jobset.PLURAL)
_TRAINJOBS = (trainjob.GROUP, trainjob.VERSION, trainjob.PLURAL)
_RUNTIMES = (trainjob.GROUP, trainjob.VERSION, trainjob.RUNTIME_PLURAL)
_CLUSTER_RUNTIMES = (trainjob.GROUP, trainjob.VERSION, trainjob.CLUSTER_RUNTIME_PLURAL)
_RBAC_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"{_RBAC_GROUP}/v1"
_USER = 65532
_SAMPLES_DIRECTORY = "/var/lib/torchyard"


@dataclass(frozen=True, slots=True)
class Installation:
    image: str
    namespace: str = NAMESPACE
    replicas: int | str = 2  # one leads, the other takes over; the chart puts a template expression here
    gang_scheduler: str = ""
    watched: tuple[str, ...] = ()  # namespaces whose jobs are managed; empty: all
    jobsets: bool = True  # with JobSets, unless upstream's manager runs them
    trainjobs: bool = True  # with TrainJobs, unless upstream's Trainer runs them
    monitoring: bool = False  # with a ServiceMonitor, alerts and dashboards
    progress: bool = True  # with the progress of jobs
    log_progress: bool = True  # also from what programs print
    samples: bool = True  # with curves of jobs for the console
    samples_claim: str = ""  # a PersistentVolumeClaim in the operator's namespace, where the curves survive a restart
    queues: bool = False  # with the integration into Kueue, where Kueue leaves PyTorchJobs to the operator


def as_yaml(manifests: list[Object]) -> str:
    # The C library is ten times as fast, but not available everywhere.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return "".join(f"---\n{yaml.dump(manifest, Dumper=dumper, sort_keys=False, width=120)}" for manifest in manifests)


def definitions(*, jobsets: bool = True, trainjobs: bool = True) -> list[Object]:
    """With the labels by which `yard uninstall` recognizes them."""
    served = [
        definition_object(),
        *([jobset_definition()] if jobsets else ()),
        *([trainjob_definition(), *runtime_definitions()] if trainjobs else ()),
    ]
    return [{**definition, "metadata": {**definition["metadata"], "labels": LABELS}} for definition in served]


def objects(to: Installation) -> list[Object]:
    """In the order in which they are applied, without the definitions."""
    return [
        _object("v1", "Namespace", to.namespace, labels={"pod-security.kubernetes.io/enforce": "restricted"}),
        _object("v1", "ServiceAccount", NAME, to.namespace),
        *_roles(to),
        *(queue_objects(to) if to.queues else ()),
        *user_roles("torchyard-training", definitions(jobsets=to.jobsets, trainjobs=to.trainjobs), labels=LABELS),
        _deployment(to),
        _service(to),
        _disruption_budget(to),
        _network_policy(to),
        _webhook(to),
        *jobset_objects(to),
        *trainjob_objects(to),
    ]


def _object(
    version: str, kind: str, name: str, namespace: str = "", *, labels: Object | None = None, **body: Any
) -> Object:
    metadata: Object = {"name": name, "labels": {**LABELS, **(labels or {})}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def _roles(to: Installation) -> list[Object]:
    """The operator's roles: where the jobs are, in its own namespace, and for its own webhooks."""
    jobs, mutating = permissions.job_permissions(to.gang_scheduler), [DEFAULTS_WEBHOOK]
    if to.jobsets:
        jobs += permissions.jobset_permissions()
        mutating.append(JOBSET_DEFAULTS_WEBHOOK)
    if to.trainjobs:
        mutating.append(TRAINJOB_DEFAULTS_WEBHOOK)
    webhooks = permissions.webhook_permissions(WEBHOOK, *mutating) + permissions.JOBSET_DETECTION
    webhooks += permissions.TRAINER_DETECTION
    if to.trainjobs:
        jobs += permissions.trainjob_permissions()
        webhooks += permissions.RUNTIME_PERMISSIONS
    if to.progress:
        jobs += permissions.progress_permissions()
        jobs += permissions.LOG_PERMISSIONS if to.log_progress and not to.trainjobs else []
        webhooks += permissions.TOKEN_REVIEWS if to.trainjobs else []
    jobs += permissions.USAGE_PERMISSIONS if to.samples else []
    own = permissions.own_namespace_permissions(LEASE, WEBHOOK_SECRET)
    roles = []
    if to.watched:
        for namespace in to.watched:
            # Two roles of the same name in one namespace would overwrite each other, so the watched own namespace gets
            # both.
            granted = [*jobs, *own] if namespace == to.namespace else jobs
            roles += _role(to, NAME, granted, namespace)
    if to.namespace not in to.watched:
        roles += _role(to, NAME, own, to.namespace)
    if to.samples:
        roles += _samples_role(to)
    return [*_role(to, NAME, webhooks if to.watched else [*jobs, *webhooks]), *roles]


def _samples_role(to: Installation) -> list[Object]:
    """Every user may ask the operator for curves, through the API server; it answers those who know a job's uid."""
    rule = {"apiGroups": [""], "resources": ["services/proxy"], "resourceNames": [PROXIED_NAME], "verbs": ["get"]}
    name = f"{NAME}-samples"
    reference = {"apiGroup": _RBAC_GROUP, "kind": "Role", "name": name}
    users = {"apiGroup": _RBAC_GROUP, "kind": "Group", "name": "system:authenticated"}
    return [
        _object(_RBAC, "Role", name, to.namespace, rules=[rule]),
        _object(_RBAC, "RoleBinding", name, to.namespace, roleRef=reference, subjects=[users]),
    ]


def _role(to: Installation, name: str, granted: list[permissions.Permission], namespace: str = "") -> list[Object]:
    """A role and its binding to the operator: in a namespace, or cluster-wide."""
    kind = "Role" if namespace else "ClusterRole"
    return [
        _object(_RBAC, kind, name, namespace, rules=[permissions.policy_rule(permission) for permission in granted]),
        _object(
            _RBAC,
            f"{kind}Binding",
            name,
            namespace,
            roleRef={"apiGroup": _RBAC_GROUP, "kind": kind, "name": name},
            subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": to.namespace}],
        ),
    ]


def queue_objects(to: Installation) -> list[Object]:
    """The integration with a Kueue that leaves PyTorchJobs to the operator."""
    hook = _hook(to, DEFAULTS_WEBHOOK, "/default", ["CREATE"])
    hook["objectSelector"] = {"matchExpressions": [{"key": QUEUE_NAME, "operator": "Exists"}]}
    hook["reinvocationPolicy"] = "Never"
    return [
        *_role(to, f"{NAME}-queues", [*permissions.KUEUE_DETECTION, *permissions.queue_permissions()]),
        _object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", DEFAULTS_WEBHOOK, webhooks=[hook]),
    ]


def jobset_objects(to: Installation) -> list[Object]:
    """The webhook that sets the defaults of JobSets; on updates too, so that a manifest can be applied twice."""
    if not to.jobsets:
        return []
    hook = _hook(to, JOBSET_DEFAULTS_WEBHOOK, "/default-jobset", ["CREATE", "UPDATE"], _JOBSETS)
    return [
        _object(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            JOBSET_DEFAULTS_WEBHOOK,
            webhooks=[hook],
        )
    ]


def trainjob_objects(to: Installation) -> list[Object]:
    """The webhook that sets the times of a TrainJob's patches."""
    if not to.trainjobs:
        return []
    hook = _hook(to, TRAINJOB_DEFAULTS_WEBHOOK, "/default-trainjob", ["CREATE", "UPDATE"], _TRAINJOBS)
    return [
        _object(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            TRAINJOB_DEFAULTS_WEBHOOK,
            webhooks=[hook],
        )
    ]


def sdk_objects(to: Installation) -> list[Object]:
    """What Kubeflow's SDK asks about the installation, in a namespace that other parts of Kubeflow may share.

    The chart does not have them: Helm does not adopt a namespace that exists already.
    """
    if not to.trainjobs:
        return []
    return [{**obj, "metadata": {**obj["metadata"], "labels": LABELS}} for obj in public_objects()]


def _deployment(to: Installation) -> Object:
    arguments = ["operator", f"--own-namespace={to.namespace}"]
    if to.gang_scheduler:
        arguments.append(f"--gang-scheduler-name={to.gang_scheduler}")
    if not to.jobsets:
        arguments.append("--no-jobsets")
    if not to.trainjobs:
        arguments.append("--no-trainjobs")
    if not to.progress:
        arguments.append("--no-progress")
    elif not to.log_progress:
        arguments.append("--no-log-progress")
    if not to.samples:
        arguments.append("--no-samples")
    elif to.samples_claim:
        arguments.append(f"--samples-directory={_SAMPLES_DIRECTORY}")
    arguments += [f"--namespace={namespace}" for namespace in to.watched]
    ports = {"metrics": METRICS_PORT, "health": HEALTH_PORT, "webhook": WEBHOOK_PORT}
    if to.samples:
        ports[PORT_NAME] = SAMPLES_PORT
    if _serves_reports(to):
        ports["status"] = STATUS_PORT
    container: Object = {
        "name": "operator",
        "image": to.image,
        "args": arguments,
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "livenessProbe": _probe("/healthz", delay=15, period=20),
        "readinessProbe": _probe("/readyz", delay=1, period=2),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a volume of its own
    }
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    pod: Object = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": _SELECTOR}}],
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
        "terminationGracePeriodSeconds": 10,
    }
    if to.samples and to.samples_claim:
        pod["securityContext"]["fsGroup"] = _USER
        container["volumeMounts"].append({"name": "samples", "mountPath": _SAMPLES_DIRECTORY})
        pod["volumes"].append({"name": "samples", "persistentVolumeClaim": {"claimName": to.samples_claim}})
    spec = {
        "replicas": to.replicas,
        "selector": {"matchLabels": _SELECTOR},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", NAME, to.namespace, spec=spec)


def _serves_reports(to: Installation) -> bool:
    """Whether the nodes of TrainJobs report their progress to the operator."""
    return to.progress and to.trainjobs


def _probe(path: str, *, delay: int, period: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "health"},
        "initialDelaySeconds": delay,
        "periodSeconds": period,
        "timeoutSeconds": 3,
    }


def _service(to: Installation) -> Object:
    ports = [
        {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"},
        {"name": "webhook", "port": 443, "targetPort": "webhook"},
    ]
    if _serves_reports(to):
        ports.append({"name": "status", "port": STATUS_PORT, "targetPort": "status"})
    if to.samples:
        ports.append({"name": PORT_NAME, "port": SAMPLES_PORT, "targetPort": PORT_NAME})
    return _object("v1", "Service", NAME, to.namespace, spec={"selector": _SELECTOR, "ports": ports})


def _disruption_budget(to: Installation) -> Object:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _SELECTOR}}
    return _object("policy/v1", "PodDisruptionBudget", NAME, to.namespace, spec=spec)


def _network_policy(to: Installation) -> Object:
    numbers = [METRICS_PORT, HEALTH_PORT, WEBHOOK_PORT, *([STATUS_PORT] if _serves_reports(to) else ())]
    numbers += [SAMPLES_PORT] if to.samples else []
    ports = [{"port": port, "protocol": "TCP"} for port in numbers]
    spec = {"podSelector": {"matchLabels": _SELECTOR}, "policyTypes": ["Ingress"], "ingress": [{"ports": ports}]}
    return _object("networking.k8s.io/v1", "NetworkPolicy", NAME, to.namespace, spec=spec)


def _webhook(to: Installation) -> Object:
    hooks = [_hook(to, WEBHOOK, "/validate", ["CREATE", "UPDATE"])]
    if to.jobsets:
        hooks.append(_hook(to, f"jobset-{WEBHOOK}", "/validate-jobset", ["CREATE", "UPDATE"], _JOBSETS))
    if to.trainjobs:
        hooks.append(_hook(to, f"trainjob-{WEBHOOK}", "/validate-trainjob", ["CREATE", "UPDATE"], _TRAINJOBS))
        hooks.append(_hook(to, f"trainingruntime-{WEBHOOK}", "/validate-runtime", ["CREATE"], _RUNTIMES))
        of_cluster = _hook(
            to, f"clustertrainingruntime-{WEBHOOK}", "/validate-runtime", ["CREATE", "UPDATE"], _CLUSTER_RUNTIMES
        )
        of_cluster["rules"][0]["scope"] = "Cluster"
        of_cluster.pop("namespaceSelector", None)
        hooks.append(of_cluster)
    return _object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", WEBHOOK, webhooks=hooks)


def _hook(
    to: Installation, name: str, path: str, operations: list[str], resource: tuple[str, str, str] = _PYTORCHJOBS
) -> Object:
    """Without a CA: the operator sets it, and an upgrade keeps it."""
    group, version, plural = resource
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": [plural],
        "scope": "Namespaced",
    }
    hook = {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": NAME, "namespace": to.namespace, "path": path, "port": 443}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": [rule],
    }
    if to.watched:
        names_in = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(to.watched)}
        hook["namespaceSelector"] = {"matchExpressions": [names_in]}
    return hook
