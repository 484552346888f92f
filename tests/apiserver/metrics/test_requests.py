"""The server's metrics, as Prometheus parses them."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from torchyard.apiserver.metrics.exposition import expose
from torchyard.apiserver.metrics.requests import RequestMetrics
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.store import Store

CREATED = ("create", "batch", "v1", "jobs", "", "201")
WATCHED = ("watch", "", "v1", "pods", "", "200")


async def test_requests_durations_objects_and_watches_are_exposed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    await store.put("/pods/a/one", Draft({"metadata": {}}), expected=0)
    metrics = RequestMetrics(store)
    for seconds in (0.001, 0.2, 99.0):
        metrics.count(CREATED, seconds)
    metrics.count(WATCHED, None)
    samples = {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if value)): sample.value
        for family in text_string_to_metric_families(expose(metrics).decode())
        for sample in family.samples
    }
    await store.close()
    assert samples["apiserver_request_total", "201", "batch", "jobs", "create", "v1"] == 3
    assert samples["apiserver_request_total", "200", "pods", "watch", "v1"] == 1
    buckets = {le: samples["apiserver_request_duration_seconds_bucket", "batch", le, "jobs", "create"] for le in BOUNDS}
    assert buckets == BOUNDS
    assert samples["apiserver_request_duration_seconds_count", "batch", "jobs", "create"] == 3
    assert samples["apiserver_request_duration_seconds_sum", "batch", "jobs", "create"] == 99.201
    assert not [key for key in samples if "duration" in key[0] and "pods" in key]
    assert samples["apiserver_storage_objects", "pods"] == 1
    assert samples["apiserver_longrunning_requests", "WATCH"] == 0
    assert samples["process_resident_memory_bytes",] > 0


BOUNDS = {"0.001": 1, "0.0025": 1, "0.1": 1, "0.25": 2, "10.0": 2, "+Inf": 3}
