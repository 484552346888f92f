"""The operator's metrics, with the names of upstream's training operator and controller-runtime.

Upstream's counters are wrong in known ways: a restart of the operator counts every job as created again, a restart of a
job counts twice, and most failures are not counted. These counters follow the observed changes of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from torchyard.api.conditions import has_true_condition
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages
from torchyard.core.pytorchjob.view import Restarts
from torchyard.kube.informer import Informer
from torchyard.kube.workqueue import WorkQueue

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_JOB = ("job_namespace", "framework")
FRAMEWORK = "pytorch"
_COUNTED = {messages.CREATED: "created", messages.SUCCEEDED: "successful", messages.FAILED: "failed"}


class OperatorMetrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.sources: list[Callable[[], bytes]] = []  # metrics of controllers, as text
        ProcessCollector(registry=registry)
        self._jobs = {
            outcome: Counter(f"training_operator_jobs_{outcome}", f"Jobs {outcome}.", _JOB, registry=registry)
            for outcome in ("created", "deleted", "successful", "failed", "restarted")
        }
        controller = ("controller", "result")
        self._reconciles = Counter(
            "controller_runtime_reconcile", "Reconciliations by result.", controller, registry=registry
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors", "Reconciliations that failed.", ("controller",), registry=registry
        )
        self._times = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Time of a reconciliation.",
            ("controller",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._requests = Counter(
            "rest_client_requests", "Requests to the API server.", ("code", "method"), registry=registry
        )
        self._request_times = Histogram(
            "rest_client_request_duration_seconds",
            "Time of a request to the API server.",
            ("verb",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._of_request: dict[
            tuple[str, int], tuple[Counter, Histogram]
        ] = {}  # a lookup takes longer than everything else
        self._leads = Gauge("leader_election_master_status", "1 if this copy leads.", ("name",), registry=registry)
        self._queue_mode = Gauge(
            "torchyard_operator_queue_mode", "Who brings jobs into Kueue's queues here.", ("mode",), registry=registry
        )
        self._reviews = Counter(
            "controller_runtime_webhook_requests",
            "Admission reviews by answer.",
            ("webhook", "code"),
            registry=registry,
        )

    def reconciled(self, controller: str, result: str, seconds: float) -> None:
        self._reconciles.labels(controller, result).inc()
        self._times.labels(controller).observe(seconds)
        if result == "error":
            self._errors.labels(controller).inc()

    def requested(self, method: str, status: int, seconds: float) -> None:
        children = self._of_request.get((method, status))
        if children is None:
            children = self._requests.labels(str(status), method), self._request_times.labels(method)
            self._of_request[method, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def reviewed(self, path: str, code: int) -> None:
        self._reviews.labels(path, str(code)).inc()

    def queue_mode(self, mode: str) -> None:
        self._queue_mode.clear()
        self._queue_mode.labels(mode).set(1)

    def watch_queues(self, queues: Mapping[str, Sequence[WorkQueue[Any]]]) -> None:
        """`queues` are those of each controller, one for each namespace."""
        self._registry.register(_WorkQueueCollector(queues))

    def watch_leadership(self, lease: str, leads: Callable[[], bool]) -> None:
        self._leads.labels(lease).set_function(lambda: 1.0 if leads() else 0.0)

    def follow(self, jobs: Informer, leads: Callable[[], bool]) -> None:
        """Count changes of jobs while this replica leads, so that two replicas do not count the same change."""
        jobs.on_change(lambda change, job, before: self._changed(change, job, before) if leads() else None)

    def _changed(self, change: str, job: Object, before: Object | None) -> None:
        def count(outcome: str, by: int = 1) -> None:
            self._jobs[outcome].labels(job["metadata"]["namespace"], FRAMEWORK).inc(by)

        if change == "DELETED":
            count("deleted")
            return
        if before is None:
            return  # counted when the Created condition appears; older jobs were counted before this replica started
        for condition, outcome in _COUNTED.items():
            if has_true_condition(job, condition) and not has_true_condition(before, condition):
                count(outcome)
        restarts = Restarts.of(job).count - Restarts.of(before).count
        if restarts > 0:
            count("restarted", restarts)

    def text(self) -> bytes:
        return b"".join((generate_latest(self._registry), *(source() for source in self.sources)))


class _WorkQueueCollector(Collector):
    """The work queues of several namespaces as one."""

    def __init__(self, queues: Mapping[str, Sequence[WorkQueue[Any]]]) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("workqueue_depth", "Keys that wait.", labels=("name",))
        adds = CounterMetricFamily("workqueue_adds", "Keys that were added.", labels=("name",))
        retries = CounterMetricFamily("workqueue_retries", "Keys that came again after a failure.", labels=("name",))
        for controller, queues in self._queues.items():
            depth.add_metric((controller,), sum(len(queue) for queue in queues))
            adds.add_metric((controller,), sum(queue.adds for queue in queues))
            retries.add_metric((controller,), sum(queue.retries for queue in queues))
        yield from (depth, adds, retries)
