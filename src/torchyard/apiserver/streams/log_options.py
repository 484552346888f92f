"""What a request for a log says, or the refusal a real server gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from torchyard.api import errors, field_errors
from torchyard.api.schema import scalars
from torchyard.apiserver.request.request import Query
from torchyard.core.pod.logs import LogOptions

# The least that makes sense, and how that is said.
_LEAST = {
    "tailLines": (0, "must be greater than or equal to 0"),
    "limitBytes": (1, "must be greater than 0"),
    "sinceSeconds": (1, "must be greater than 0"),
}
_BOTH = "at most one of `sinceTime` or `sinceSeconds` may be specified"


def log_options(query: Query, pod: str) -> LogOptions:
    numbers = {name: query.number(name) if query.get(name) else None for name in _LEAST}
    try:
        moment = scalars.moment(query.get("sinceTime")) if query.get("sinceTime") else None
    except ValueError as error:
        raise errors.bad_request(str(error)) from None
    found = [
        field_errors.invalid(name, number, said)
        for (name, number), (least, said) in zip(numbers.items(), _LEAST.values(), strict=True)
        if number is not None and number < least
    ]
    seconds = numbers["sinceSeconds"]
    if moment is not None and seconds is not None:
        found.append(field_errors.forbidden("[]", _BOTH))
    if found:
        raise errors.invalid("PodLogOptions", "", pod, found)
    if seconds is not None:
        moment = datetime.now(UTC) - timedelta(seconds=seconds)
    stream = query.get("stream", "All").lower()
    return LogOptions(
        follow=query.flag("follow"),
        previous=query.flag("previous"),
        timestamps=query.flag("timestamps"),
        since=moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z") if moment else "",
        tail=numbers["tailLines"],
        limit=numbers["limitBytes"],
        stream="" if stream == "all" else stream,
    )
