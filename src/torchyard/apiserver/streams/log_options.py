"""The query parameters of a log request, with the real server's validation errors."""

from __future__ import annotations

from datetime import UTC, datetime

from torchyard.api import errors, field_errors
from torchyard.api.schema import scalars
from torchyard.api.times import shift
from torchyard.apiserver.request.request import Query
from torchyard.core.pod.logs import LogOptions

# The minimum of each number, and the error message.
_MINIMUMS = {
    "tailLines": (0, "must be greater than or equal to 0"),
    "limitBytes": (1, "must be greater than 0"),
    "sinceSeconds": (1, "must be greater than 0"),
}
_BOTH_SINCE = "at most one of `sinceTime` or `sinceSeconds` may be specified"


def log_options(query: Query, pod: str) -> LogOptions:
    numbers = {name: query.number(name) if query.get(name) else None for name in _MINIMUMS}
    try:
        since = scalars.moment(query.get("sinceTime")) if query.get("sinceTime") else None
    except ValueError as error:
        raise errors.bad_request(str(error)) from None
    errs = [
        field_errors.invalid(name, number, message)
        for (name, number), (minimum, message) in zip(numbers.items(), _MINIMUMS.values(), strict=True)
        if number is not None and number < minimum
    ]
    since_seconds = numbers["sinceSeconds"]
    if since is not None and since_seconds is not None:
        errs.append(field_errors.forbidden("[]", _BOTH_SINCE))
    if errs:
        raise errors.invalid("PodLogOptions", "", pod, errs)
    if since_seconds is not None:
        since = shift(datetime.now(UTC), -since_seconds)
    stream = query.get("stream", "All").lower()
    return LogOptions(
        follow=query.flag("follow"),
        previous=query.flag("previous"),
        timestamps=query.flag("timestamps"),
        since=since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z") if since else "",
        tail=numbers["tailLines"],
        limit=numbers["limitBytes"],
        stream="" if stream == "all" else stream,
    )
