"""What `yard install --monitoring` adds: monitors of the operator and of elastic jobs, rules, and dashboards. Pure."""

from __future__ import annotations

import json
from typing import NamedTuple

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
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
        "critical",
    ),
    Alert(
        "TorchyardReconcileErrors",
        "sum by (controller) (rate(controller_runtime_reconcile_errors_total[10m])) > 0.1",
        "15m",
        "Reconciliations of {{ $labels.controller }} fail.",
    ),
    Alert(
        "TorchyardJobsFail",
        "sum by (job_namespace) (increase(training_operator_jobs_failed_total[1h])) > 5",
        "0m",
        "More than five jobs of {{ $labels.job_namespace }} failed within an hour.",
    ),
    Alert(
        "TorchyardQueueStalled",
        'sum by (cluster_queue) (kueue_pending_workloads{status="active"}) > 0 unless on (cluster_queue)'
        " (sum by (cluster_queue) (increase(kueue_admitted_workloads_total[1h])) > 0)",
        "1h",
        "Workloads wait in {{ $labels.cluster_queue }}, and none was admitted for an hour.",
    ),
    Alert(
        "TorchyardElasticUnstable",
        "increase(torchyard_elastic_world_changes_total[15m]) > 10",
        "0m",
        "An elastic job changed its world more than ten times in fifteen minutes.",
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
            "annotations": {"summary": alert.summary},
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
        _object(f"{GROUP}/{VERSION}", "PodMonitor", f"{NAME}-elastic", to, spec=_elastic_pods()),
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


def _elastic_pods() -> Object:
    """The pods of all namespaces that run a coordinator, at the port that their annotation names."""
    port = "__meta_kubernetes_pod_annotation_prometheus_io_port"
    return {
        "namespaceSelector": {"any": True},
        "selector": {"matchLabels": {pytorchjob.JOB_ROLE: pytorchjob.MASTER_ROLE}},
        # A coordinator has about a dozen series with one label of its own.
        "sampleLimit": 100,
        "labelLimit": 32,
        "labelNameLengthLimit": 128,
        "labelValueLengthLimit": 512,
        "podMetricsEndpoints": [
            {
                "port": pytorchjob.PORT_NAME,
                "path": "/metrics",
                "honorLabels": False,  # the namespace and the pod of a series are those of its target
                "relabelings": [
                    {
                        "action": "keep",
                        "sourceLabels": ["__meta_kubernetes_pod_annotation_prometheus_io_scrape"],
                        "regex": "true",
                    },
                    {
                        "action": "replace",
                        "sourceLabels": ["__meta_kubernetes_pod_ip", port],
                        "separator": ":",
                        "regex": r"([^:]+):(\d+)",
                        "replacement": "$1:$2",
                        "targetLabel": "__address__",
                    },
                ],
                # A user's own program may serve anything at an address of the same annotations.
                "metricRelabelings": [
                    {"action": "keep", "sourceLabels": ["__name__"], "regex": "torchyard_elastic_.*"},
                    # The name of the job is the coordinator's own label.
                    {"action": "replace", "sourceLabels": ["exported_job"], "regex": "(.+)", "targetLabel": "job"},
                    {"action": "labeldrop", "regex": "exported_.*"},
                ],
            }
        ],
    }


def _object(
    version: str, kind: str, name: str, to: Installation, *, labels: dict[str, str] | None = None, **body: Object
) -> Object:
    metadata = {"name": name, "namespace": to.namespace, "labels": {**LABELS, **(labels or {})}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}
