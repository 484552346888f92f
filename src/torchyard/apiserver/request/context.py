"""What a request asks of a resource: the user, the verb, the object and the options. Every verb gets one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

from torchyard.api import errors, field_errors
from torchyard.api.names import path_segment_problems
from torchyard.api.quoting import quote
from torchyard.api.resources import Resource
from torchyard.api.times import TimeError, parse_duration
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.patch.parse import field_manager, field_manager_errors
from torchyard.apiserver.request import computation
from torchyard.apiserver.request.request import Query

T = TypeVar("T")
# Seconds; upstream's limit for writes, webhooks included. A client can only shorten it.
REQUEST_TIMEOUT = 34.0
FieldValidation = Literal["Strict", "Warn", "Ignore"]


@dataclass(slots=True)
class RequestContext:
    resource: Resource
    verb: str
    namespace: str
    name: str
    user: User
    now: datetime
    subresource: str = ""
    query: Query = field(default_factory=Query)
    user_agent: str = ""
    dry_run: bool = False
    force: bool = False
    validation: FieldValidation = "Warn"
    manager: str = ""
    # Set for the server's own objects, which skip validation: its Endpoints may have a loopback address.
    trusted: bool = False
    warnings: dict[str, None] = field(default_factory=dict)  # in the order in which they came, each once
    # The size in bytes of the largest document that the request processes.
    size: int = 0
    # How long webhooks may take, all together.
    timeout: float = REQUEST_TIMEOUT
    # For updates and patches, which may create the object: raises 403 unless the user may create it.
    authorize_create: Callable[[], None] | None = None

    def warn(self, sentence: str) -> None:
        self.warnings[sentence] = None

    def compute(self, function: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
        """The result of a function that uses only what belongs to this request; in a thread if the request is large."""
        return computation.compute(self.size, function, *args)

    @property
    def field_manager(self) -> str:
        """The manager of the changed fields: the `fieldManager` option, else the name of the client program."""
        return field_manager(self.manager, self.user_agent)

    def not_found(self) -> errors.StatusError:
        """The error for an object that does not exist, or whose name no object can have."""
        if problems := path_segment_problems(self.name):
            return errors.bad_request(f"Name parameter invalid: {quote(self.name)}: {';'.join(problems)}")
        return errors.not_found(self.resource.plural, self.resource.group, self.name)

    def conflict(self, why: str = errors.MODIFIED) -> errors.StatusError:
        return errors.conflict(self.resource.plural, self.resource.group, self.name, why)

    def invalid(self, name: str, errs: list[field_errors.FieldError]) -> errors.StatusError:
        # As upstream: an object that is stored in another group is called by that one.
        resource = self.resource
        group = resource.group if resource.storage_group is None else resource.storage_group
        return errors.invalid(resource.kind, group, name, errs)


# YAML takes so much longer to parse than JSON of the same length.
_YAML_FACTOR = 16


def document_size(length: int, headers: Mapping[str, str]) -> int:
    """The length of a body, weighted by its format: `computation.LARGE_BYTES` is for JSON."""
    is_small = length * _YAML_FACTOR <= computation.LARGE_BYTES
    return length if is_small or "yaml" not in headers.get("Content-Type", "") else length * _YAML_FACTOR


_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions", "delete": "DeleteOptions"}


def read_options(ctx: RequestContext) -> None:
    """Read the write options from the query; 422 for invalid ones, as upstream."""
    query = ctx.query
    if not query:
        return
    errs: list[field_errors.FieldError] = []
    dry_run = query.all("dryRun")
    if any(value != "All" for value in dry_run):
        errs.append(field_errors.not_supported("dryRun", dry_run, ["All"]))
    ctx.dry_run = bool(dry_run)
    ctx.manager = query.get("fieldManager")
    if ctx.verb != "patch":  # a patch checks its own options: see `verbs.patch`
        errs += field_manager_errors(ctx.manager)
    validation: Any = query.get("fieldValidation") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        errs.append(field_errors.not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"]))
    ctx.validation = validation
    ctx.force = query.flag("force")
    ctx.timeout = _timeout(query.get("timeout"))
    if errs:
        options = _OPTIONS.get(ctx.verb, "UpdateOptions")
        raise errors.invalid(options, "meta.k8s.io", "", errs)


def _timeout(text: str) -> float:
    """The `timeout` option; zero and negative durations mean the default."""
    if not text:
        return REQUEST_TIMEOUT
    try:
        seconds = parse_duration(text).total_seconds()
    except TimeError:
        reason = f"time: invalid duration {quote(text)}"
        raise errors.bad_request(f"invalid timeout specified in the request URL - {reason}") from None
    return min(seconds, REQUEST_TIMEOUT) if seconds > 0 else REQUEST_TIMEOUT
