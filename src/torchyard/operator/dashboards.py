"""Three Grafana dashboards: jobs, queues, elastic jobs. Pure; the queries are tested with Prometheus' own parser."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.objects import Object


class Panel(NamedTuple):
    title: str
    query: str
    legend: str = ""
    unit: str = "short"  # Grafana's name


class Dashboard(NamedTuple):
    name: str
    title: str
    panels: tuple[Panel, ...]


_NAMESPACE = 'namespace=~"$namespace"'
DASHBOARDS = (
    Dashboard(
        "jobs",
        "Torchyard / Jobs",
        (
            Panel("Jobs by state", f"sum by (state) (torchyard_jobs{{{_NAMESPACE}}})", "{{state}}"),
            Panel(
                "Running jobs by kind", f'sum by (kind) (torchyard_jobs{{{_NAMESPACE}, state="running"}})', "{{kind}}"
            ),
            Panel(
                "Failed jobs an hour",
                "sum by (job_namespace) (increase(training_operator_jobs_failed_total[1h]))",
                "{{job_namespace}}",
            ),
            Panel(
                "Restarts an hour",
                "sum by (job_namespace) (increase(training_operator_jobs_restarted_total[1h]))",
                "{{job_namespace}}",
            ),
            Panel(
                "Reconciliations",
                "sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))",
                "{{controller}} {{result}}",
                "ops",
            ),
            Panel(
                "Time of a reconciliation (p99)",
                "histogram_quantile(0.99, sum by (le, controller)"
                " (rate(controller_runtime_reconcile_time_seconds_bucket[5m])))",
                "{{controller}}",
                "s",
            ),
            Panel("Keys that wait", "sum by (name) (workqueue_depth)", "{{name}}"),
            Panel(
                "Requests to the API server",
                "sum by (code) (rate(rest_client_requests_total[5m]))",
                "{{code}}",
                "reqps",
            ),
        ),
    ),
    Dashboard(
        "queues",
        "Torchyard / Queues",
        (
            Panel(
                "Pending workloads",
                "sum by (cluster_queue, status) (kueue_pending_workloads)",
                "{{cluster_queue}} {{status}}",
            ),
            Panel(
                "Admitted workloads", "sum by (cluster_queue) (kueue_admitted_active_workloads)", "{{cluster_queue}}"
            ),
            Panel(
                "Quota in use",
                "sum by (cluster_queue, flavor, resource) (kueue_cluster_queue_resource_usage)",
                "{{cluster_queue}} {{flavor}} {{resource}}",
            ),
            Panel(
                "Wait for admission (p90)",
                "histogram_quantile(0.9, sum by (le, cluster_queue)"
                " (rate(kueue_admission_wait_time_seconds_bucket[1h])))",
                "{{cluster_queue}}",
                "s",
            ),
            Panel(
                "Admissions a minute",
                "60 * sum by (cluster_queue) (rate(kueue_admitted_workloads_total[5m]))",
                "{{cluster_queue}}",
            ),
            Panel(
                "Evictions an hour",
                "sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total[1h]))",
                "{{cluster_queue}} {{reason}}",
            ),
        ),
    ),
    Dashboard(
        "elastic",
        "Torchyard / Elastic jobs",
        (
            Panel("Workers", "torchyard_elastic_world_size", "{{exported_job}}{{job}}"),
            Panel(
                "Missing workers",
                "torchyard_elastic_workers_wanted - torchyard_elastic_world_size",
                "{{exported_job}}{{job}}",
            ),
            Panel("Goodput", "torchyard:elastic_goodput:ratio_rate5m", "{{exported_job}}{{job}}", "percentunit"),
            Panel(
                "Steps a second", "clamp_min(deriv(torchyard_elastic_step[5m]), 0)", "{{exported_job}}{{job}}", "ops"
            ),
            Panel(
                "Records a second",
                "clamp_min(deriv(torchyard_elastic_records[5m]), 0)",
                "{{exported_job}}{{job}}",
                "ops",
            ),
            Panel(
                "World changes an hour",
                "increase(torchyard_elastic_world_changes_total[1h])",
                "{{exported_job}}{{job}}",
            ),
            Panel(
                "Time of a recovery",
                "rate(torchyard_elastic_reform_seconds_sum[30m]) / rate(torchyard_elastic_reform_seconds_count[30m])",
                "{{exported_job}}{{job}}",
                "s",
            ),
            Panel(
                "Commit of the ledger (p99)",
                "torchyard_elastic_ledger_commit_seconds_p99",
                "{{exported_job}}{{job}}",
                "s",
            ),
        ),
    ),
)


def grafana_dashboard(dashboard: Dashboard) -> Object:
    """As Grafana imports it. The data source is chosen in the dashboard."""
    return {
        "uid": f"torchyard-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["torchyard"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_data_source(), *([_namespace()] if dashboard.name == "jobs" else [])]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _panel(number: int, panel: Panel) -> Object:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "expr": panel.query, "legendFormat": panel.legend}],
    }


def _data_source() -> Object:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _namespace() -> Object:
    return {
        "name": "namespace",
        "type": "query",
        "label": "Namespace",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": "label_values(torchyard_jobs, namespace)",
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
    }
