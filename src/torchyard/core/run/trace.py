"""One trace of a job that has ended, in OpenTelemetry's terms: submitted, queued, pods, first step, end.

The ids follow from the job's uid: a job that is exported twice is one trace.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339
from torchyard.core.run.record import RunRecord, build_record
from torchyard.core.run.state import run_state

_SERVER, _INTERNAL = 2, 1  # span kinds
_OK, _ERROR = 1, 2
Attributes = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class TraceSpan:
    name: str
    start: datetime
    end: datetime
    attributes: Attributes = field(default_factory=dict)
    error: str | None = None  # of a span that failed
    is_root: bool = False


def job_spans(job: Object, pods: list[Object], now: datetime, first_step: datetime | None = None) -> list[TraceSpan]:
    """The root first. A phase whose times are unknown is left out."""
    record, metadata = build_record(job, pods, now), job["metadata"]
    created, ended = parse_rfc3339(record["created"]), parse_rfc3339(record["ended"])
    attributes: Attributes = {
        "k8s.namespace.name": metadata["namespace"],
        "torchyard.job.kind": job["kind"],
        "torchyard.job.name": metadata["name"],
        "torchyard.job.uid": metadata["uid"],
        "torchyard.job.state": record["state"],
        "torchyard.job.replicas": len(record["replicas"]),
    }
    error = None if run_state(job).succeeded else record["message"] or record["state"]
    root = TraceSpan(f"{job['kind']} {metadata['name']}", created, max(created, ended), attributes, error, is_root=True)
    return [root, *_phases(job, pods, root, first_step), *_replicas(record, pods)]


def _phases(job: Object, pods: list[Object], root: TraceSpan, first_step: datetime | None) -> list[TraceSpan]:
    """What the job did one after the other: each phase begins where the one before ended."""
    ends = (
        ("queued", _admitted(job)),
        ("create pods", _first(pod["metadata"].get("creationTimestamp") for pod in pods)),
        ("schedule", _first(_condition_time(pod, "PodScheduled") for pod in pods)),
        ("pull images and start", _first(_started(pod) for pod in pods)),
        ("first step", first_step),
        ("train", root.end),
    )
    spans, start = [], root.start
    for name, end in ends:
        if end is not None and start <= end <= root.end:
            spans.append(TraceSpan(name, start, end))
            start = end
    return spans


def _admitted(job: Object) -> datetime | None:
    """When a job that was suspended, by a queue or by its user, was resumed."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Suspended" and condition.get("status") == "False":
            return _time(condition.get("lastTransitionTime"))
    return None


def _condition_time(pod: Object, type: str) -> str | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((condition.get("lastTransitionTime") for condition in conditions if condition["type"] == type), None)


def _started(pod: Object) -> str | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        state = container.get("state") or {}
        started = (state.get("terminated") or state.get("running") or {}).get("startedAt")
        if started:
            return str(started)
    return None


def _first(times: object) -> datetime | None:
    known = [moment for text in times if (moment := _time(text)) is not None]  # type: ignore[attr-defined]
    return min(known, default=None)


def _time(text: str | None) -> datetime | None:
    return parse_rfc3339(text) if text else None


def _replicas(record: RunRecord, pods: list[Object]) -> list[TraceSpan]:
    nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") or "" for pod in pods}
    spans = []
    for replica in record["replicas"]:
        if replica["started"] and replica["finished"]:
            attributes: Attributes = {"k8s.pod.name": replica["pod"], "k8s.node.name": nodes.get(replica["pod"], "")}
            if replica["exitCode"] is not None:
                attributes["process.exit.code"] = replica["exitCode"]
            error = (replica["reason"] or "failed") if replica["exitCode"] else None
            start, end = parse_rfc3339(replica["started"]), parse_rfc3339(replica["finished"])
            spans.append(TraceSpan(f"replica {replica['name']}", start, max(start, end), attributes, error))
    return spans


def otlp_request(uid: str, spans: list[TraceSpan], service: str) -> Object:
    """An ExportTraceServiceRequest of OTLP in JSON."""
    trace = hashlib.sha256(f"trace {uid}".encode()).hexdigest()[:32]
    root = _span_id(uid, 0)
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": service})},
                "scopeSpans": [
                    {
                        "scope": {"name": "torchyard"},
                        "spans": [
                            _otlp_span(span, trace, root, _span_id(uid, number)) for number, span in enumerate(spans)
                        ],
                    }
                ],
            }
        ]
    }


def _otlp_span(span: TraceSpan, trace: str, root: str, identity: str) -> Object:
    status: Object = {"code": _OK} if span.error is None else {"code": _ERROR, "message": span.error}
    return {
        "traceId": trace,
        "spanId": identity,
        **({} if span.is_root else {"parentSpanId": root}),
        "name": span.name,
        "kind": _SERVER if span.is_root else _INTERNAL,
        "startTimeUnixNano": _nanoseconds(span.start),
        "endTimeUnixNano": _nanoseconds(span.end),
        "attributes": _attributes(span.attributes),
        "status": status,
    }


def _span_id(uid: str, number: int) -> str:
    return hashlib.sha256(f"span {uid} {number}".encode()).hexdigest()[:16]


def _nanoseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1_000_000) * 1000)  # OTLP's JSON has 64-bit numbers as strings


def _attributes(attributes: Attributes) -> list[Object]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]
