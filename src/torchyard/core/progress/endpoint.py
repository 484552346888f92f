"""The body of a report at the endpoint of TrainJobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.trainjob import names
from torchyard.core.progress.reports import ENDPOINT, JobReference, ProgressReport
from torchyard.core.progress.trainer_status import TRAINER_STATUS, metrics_by_name, report_time, trainer_status_errors

MAX_BODY_BYTES = 1 << 16


def parse_report(
    body: bytes, job: JobReference, now: datetime, *, replica: str = ""
) -> tuple[ProgressReport | None, Object]:
    """The report about a TrainJob, and the response. A body without a status reports nothing. Raises 422.

    The clock of the program is shown, and not trusted: reports are ordered by the time of their arrival.
    """
    try:
        document: Any = orjson.loads(body)
    except ValueError:
        raise StatusError(422, "Invalid", "Invalid payload") from None
    if not isinstance(document, dict):
        raise StatusError(422, "Invalid", "Invalid payload")
    status = document.get(TRAINER_STATUS)
    if status is None:
        return None, {}
    if errs := trainer_status_errors(status):
        raise errors.invalid(names.KIND, names.GROUP, job.name, errs)
    percent, remaining = status.get("progressPercentage"), status.get("estimatedRemainingSeconds")
    report = ProgressReport(
        job,
        replica,
        0,
        now,
        ENDPOINT,
        percent,
        remaining,
        metrics_by_name(status),
        min(report_time(status), now),
        is_last=percent == 100,
    )
    return report, {TRAINER_STATUS: status}
