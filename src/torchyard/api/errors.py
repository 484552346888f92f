"""The base exception, and the errors that an API client receives as a Kubernetes `Status`.

Every error has a short `code` for programs, a `message` for people and, where possible, a `hint` that says what to do.
An error is either raised or logged, never both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torchyard.api.field_errors import MAX_ERRORS, FieldError
from torchyard.api.quoting import quote


class YardError(Exception):
    """Base of every error that Torchyard raises on purpose."""

    code = "Error"
    temporary = False

    def __init__(self, message: str, *, hint: str = "", code: str | None = None, temporary: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code
        if temporary is not None:
            self.temporary = temporary

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class StatusError(YardError):
    """An error with an HTTP status and a machine-readable reason, as an API client receives it."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=reason, temporary=status in (409, 429, 503, 504))
        self.status = status
        self.reason = reason
        self.details = None if details is None else dict(details)
        self.headers = dict(headers) if headers else {}
        self.metadata = dict(metadata) if metadata else {}
        self.warnings: tuple[str, ...] = ()  # about the request, found before the error

    @property
    def is_namespace_terminating(self) -> bool:
        """Whether nothing can be created because the namespace is being deleted."""
        causes = (self.details or {}).get("causes") or ()
        return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)

    def body(self) -> dict[str, Any]:
        """Return the `Status` object of this error."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.status
        if not self.reason:
            del status["reason"]
        return status


def qualified_resource(resource: str, group: str) -> str:
    """Return the resource name as messages have it: `jobs.batch`, or `pods` in the core group."""
    return f"{resource}.{group}" if group else resource


def _details(resource: str, group: str, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if resource:
        details["kind"] = resource
    details.update(more)
    return details


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: str, group: str, name: str, why: str, **more: Any) -> StatusError:
    subject = f"{qualified_resource(resource, group)} {quote(name)}" if name else qualified_resource(resource, group)
    message = f"{subject} is forbidden: {why}" if resource else f"forbidden: {why}"
    return StatusError(403, "Forbidden", message, details=_details(resource, group, name, **more))


def not_found(resource: str, group: str, name: str) -> StatusError:
    message = f"{qualified_resource(resource, group)} {quote(name)} not found"
    return StatusError(404, "NotFound", message, details=_details(resource, group, name))


class PageNotFound(StatusError):
    """404 for a path outside the groups that the server itself serves. The answer is text, not a Status."""

    text = b"404 page not found\n"

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "the server could not find the requested resource", details={})


def no_such_path() -> StatusError:
    """404 for a path within a group that the server itself serves."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> StatusError:
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(accepted: Iterable[str]) -> StatusError:
    message = "only the following media types are accepted: " + ", ".join(accepted)
    return StatusError(406, "NotAcceptable", message)


def already_exists(resource: str, group: str, name: str) -> StatusError:
    message = f"{qualified_resource(resource, group)} {quote(name)} already exists"
    return StatusError(409, "AlreadyExists", message, details=_details(resource, group, name))


def conflict(resource: str, group: str, name: str, why: str) -> StatusError:
    message = f"Operation cannot be fulfilled on {qualified_resource(resource, group)} {quote(name)}: {why}"
    return StatusError(409, "Conflict", message, details=_details(resource, group, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def expired(message: str, *, continue_token: str = "") -> StatusError:
    metadata = {"continue": continue_token} if continue_token else None
    return StatusError(410, "Expired", message, metadata=metadata)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(kind: str, group: str, name: str, errs: list[FieldError]) -> StatusError:
    """Return a 422 with one cause per error, up to `MAX_ERRORS`. The message lists them, as kubectl prints it."""
    errs = errs[:MAX_ERRORS]
    # equal errors are two causes but one sentence, as in upstream
    lines = list(dict.fromkeys(str(error) for error in errs))
    text = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    details = _details(kind, group, name, causes=[error.cause() for error in errs])
    return StatusError(
        422, "Invalid", f"{qualified_resource(kind, group)} {quote(name)} is invalid: {text}", details=details
    )


def too_many_requests(message: str, *, retry_after: int = 1, **more: Any) -> StatusError:
    details = {"retryAfterSeconds": retry_after, **more}
    return StatusError(429, "TooManyRequests", message, details=details, headers={"Retry-After": str(retry_after)})


def internal(message: str) -> StatusError:
    return StatusError(
        500, "InternalError", f"Internal error occurred: {message}", details={"causes": [{"message": message}]}
    )


def not_implemented(feature: str) -> StatusError:
    return StatusError(501, "NotImplemented", f"{feature} is not served by Torchyard; see docs/compatibility.md")


def timeout(message: str) -> StatusError:
    return StatusError(504, "Timeout", f"Timeout: {message}", details={})


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message, headers={"Retry-After": "1"})
