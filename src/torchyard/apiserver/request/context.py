"""One call of a verb: who asks what of which resource, with which options. What every verb is handed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from torchyard.api import errors, field_errors
from torchyard.api.resources import Resource
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.patch.parse import field_manager, field_manager_errors
from torchyard.apiserver.request.request import Query

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
    # The server's own objects may say what a client's may not: that the server is at a loopback address.
    trusted: bool = False
    warnings: list[str] = field(default_factory=list)

    def warn(self, sentence: str) -> None:
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    @property
    def field_manager(self) -> str:
        """Who a change is recorded for: the name given, else the program's name."""
        return field_manager(self.manager, self.user_agent)

    def not_found(self) -> errors.StatusError:
        return errors.not_found(self.resource.plural, self.resource.group, self.name)

    def conflict(self, why: str = errors.MODIFIED) -> errors.StatusError:
        return errors.conflict(self.resource.plural, self.resource.group, self.name, why)

    def invalid(self, name: str, errs: list[field_errors.FieldError]) -> errors.StatusError:
        return errors.invalid(self.resource.kind, self.resource.group, name, errs)


_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions", "delete": "DeleteOptions"}


def read_options(ctx: RequestContext) -> None:
    """Take the write options out of the query, refusing those a real server refuses."""
    query = ctx.query
    if not query:
        return
    errs: list[field_errors.FieldError] = []
    dry = query.all("dryRun")
    if any(one != "All" for one in dry):
        errs.append(field_errors.not_supported("dryRun", dry, ["All"]))
    ctx.dry_run = bool(dry)
    ctx.manager = query.get("fieldManager")
    if ctx.verb != "patch":  # a patch has more to check: see `verbs.patch`
        errs += field_manager_errors(ctx.manager)
    said: Any = query.get("fieldValidation") or "Warn"
    if said not in ("Strict", "Warn", "Ignore"):
        errs.append(field_errors.not_supported("fieldValidation", said, ["Ignore", "Strict", "Warn"]))
    ctx.validation = said
    ctx.force = query.flag("force")
    if errs:
        options = _OPTIONS.get(ctx.verb, "UpdateOptions")
        raise errors.invalid(options, "meta.k8s.io", "", errs)
