"""What `yard install --monitoring` adds: monitors of the operator and of elastic jobs, rules, and dashboards. Pure."""

from __future__ import annotations

import json
from typing import NamedTuple

from torchyard.api.job.labels import COMPLETION_INDEX
from torchyard.api.jobset import names as jobset
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.trainjob import names as trainjob
from torchyard.operator.dashboards import DASHBOARDS, grafana_dashboard
from torchyard.operator.manifests import LABELS, NAME_LABEL, Installation
from torchyard.operator.settings import LEASE, NAME

GROUP, VERSION = "monitoring.coreos.com", "v1"
# By which the sidecar of Grafana's chart and of kube-prometheus-stack finds dashboards.
DASHBOARD_LABEL = "grafana_dashboard"


class Alert(NamedTuple):
    name: str
    query: str
    wait: str
    summary: str
    description: str  # what to look at, and what to do
    severity: str = "warning"


RECORDED = {
    # The share of the last five minutes in which an elastic job did not wait for a new world.
    "torchyard:elastic_goodput:ratio_rate5m": "clamp_min(1 - rate(torchyard_elastic_reform_seconds_sum[5m]), 0)",
}
ALERTS = (
    Alert(
        "TorchyardNoLeader",
        f'absent(leader_election_master_status{{name="{LEASE}"}} == 1)',
        "5m",
        "No copy of the operator leads: jobs are not reconciled.",
        "Look at the pods of the operator and their logs, and at the Lease of the leader election. Without a leader"
        " running jobs go on, and new, suspended and ended ones are left as they are. `yard install` repairs the"
        " Deployment and its roles.",
        "critical",
    ),
    Alert(
        "TorchyardReconcileErrors",
        "sum by (controller) (rate(controller_runtime_reconcile_errors_total[10m])) > 0.1",
        "15m",
        "Reconciliations of {{ $labels.controller }} fail.",
        "The log of the operator names the object and the error. Forbidden: run `yard install` again, because the"
        " ClusterRole is older than the operator. Timeouts: look at the API server. An admission webhook that refuses"
        " pods is named in the events of the job.",
    ),
    Alert(
        "TorchyardJobsFail",
        "sum by (job_namespace) (increase(training_operator_jobs_failed_total[1h])) > 5",
        "0m",
        "More than five jobs of {{ $labels.job_namespace }} failed within an hour.",
        "`yard ps -n {{ $labels.job_namespace }}` lists them, `yard why NAME` says what failed first. Several jobs that"
        " fail on one node point to the node, several at their first line to an image or a volume.",
    ),
    Alert(
        "TorchyardQueueStalled",
        'sum by (cluster_queue) (kueue_pending_workloads{status="active"}) > 0 unless on (cluster_queue)'
        " (sum by (cluster_queue) (increase(kueue_admitted_workloads_total[1h])) > 0)",
        "1h",
        "Workloads wait in {{ $labels.cluster_queue }}, and none was admitted for an hour.",
        "`yard queue list` shows who waits, `yard why NAME` what a job waits for. Often it needs more than the quota of"
        " the queue, the queue is stopped, or long jobs have all of the quota: raise the quota, or move or delete one.",
    ),
    Alert(
        "TorchyardElasticUnstable",
        "increase(torchyard_elastic_world_changes_total[15m]) > 10",
        "0m",
        "The elastic job {{ $labels.job }} changed its world more than ten times in fifteen minutes.",
        "The Elastic tab of `yard console`, or the log of the first pod, names the cause of each change: workers that"
        " are killed for memory or preempted again and again, or a network between them that breaks. Until then most of"
        " the time goes into forming worlds.",
    ),
)


def rule_groups() -> list[Object]:
    """The groups of a rule file of Prometheus."""
    recorded: list[Object] = [{"record": name, "expr": query} for name, query in RECORDED.items()]
    alerts: list[Object] = [
        {
            "alert": alert.name,
            "expr": alert.query,
            "for": alert.wait,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.description},
        }
        for alert in ALERTS
    ]
    return [{"name": "torchyard.recorded", "rules": recorded}, {"name": "torchyard.alerts", "rules": alerts}]


def monitoring_objects(to: Installation) -> list[Object]:
    return [
        _object(
            f"{GROUP}/{VERSION}",
            "ServiceMonitor",
            NAME,
            to,
            spec={
                "selector": {"matchLabels": {NAME_LABEL: NAME}},
                "endpoints": [{"port": "metrics", "honorLabels": True}],
            },
        ),
        _object(f"{GROUP}/{VERSION}", "PodMonitor", f"{NAME}-elastic", to, spec=_elastic_pytorchjobs()),
        _object(f"{GROUP}/{VERSION}", "PodMonitor", f"{NAME}-elastic-trainjobs", to, spec=_elastic_trainjobs()),
        _object(f"{GROUP}/{VERSION}", "PrometheusRule", NAME, to, spec={"groups": rule_groups()}),
        *(
            _object(
                "v1",
                "ConfigMap",
                f"torchyard-dashboard-{dashboard.name}",
                to,
                labels={DASHBOARD_LABEL: "1"},
                data={f"torchyard-{dashboard.name}.json": json.dumps(grafana_dashboard(dashboard), indent=2)},
            )
            for dashboard in DASHBOARDS
        ),
    ]


def _elastic_pytorchjobs() -> Object:
    """The masters, at the port that their annotation names."""
    port = "__meta_kubernetes_pod_annotation_prometheus_io_port"
    is_elastic = {
        "action": "keep",
        "sourceLabels": ["__meta_kubernetes_pod_annotation_prometheus_io_scrape"],
        "regex": "true",
    }
    address = {
        "action": "replace",
        "sourceLabels": ["__meta_kubernetes_pod_ip", port],
        "separator": ":",
        "regex": r"([^:]+):(\d+)",
        "replacement": "$1:$2",
        "targetLabel": "__address__",
    }
    selector = {"matchLabels": {pytorchjob.JOB_ROLE: pytorchjob.MASTER_ROLE}}
    return _coordinators(selector, pytorchjob.PORT_NAME, [is_elastic, address])


def _elastic_trainjobs() -> Object:
    """The first nodes. All nodes have the coordinator's port, because they have the same template."""
    selector = {
        "matchLabels": {COMPLETION_INDEX: "0"},
        "matchExpressions": [{"key": jobset.JOBSET_NAME, "operator": "Exists"}],
    }
    return _coordinators(selector, trainjob.COORDINATOR_PORT_NAME, [])


def _coordinators(selector: Object, port: str, relabelings: list[Object]) -> Object:
    """The selected pods of all namespaces. `port` is the name of a port of theirs."""
    endpoint: Object = {
        "port": port,
        "path": "/metrics",
        "honorLabels": False,  # the namespace and the pod of a series are those of its target
        "relabelings": relabelings,
        # A user's own program may serve anything at the same port.
        "metricRelabelings": [
            {"action": "keep", "sourceLabels": ["__name__"], "regex": "torchyard_elastic_.*"},
            # The name of the job is the coordinator's own label.
            {"action": "replace", "sourceLabels": ["exported_job"], "regex": "(.+)", "targetLabel": "job"},
            {"action": "labeldrop", "regex": "exported_.*"},
        ],
    }
    return {
        "namespaceSelector": {"any": True},
        "selector": selector,
        # A coordinator has about a dozen series with one label of its own.
        "sampleLimit": 100,
        "labelLimit": 32,
        "labelNameLengthLimit": 128,
        "labelValueLengthLimit": 512,
        "podMetricsEndpoints": [endpoint],
    }


def _object(
    version: str, kind: str, name: str, to: Installation, *, labels: dict[str, str] | None = None, **body: Object
) -> Object:
    metadata = {"name": name, "namespace": to.namespace, "labels": {**LABELS, **(labels or {})}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}
