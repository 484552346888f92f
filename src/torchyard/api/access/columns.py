"""Table columns of role bindings, admission configuration, certificate requests, APIServices and flow control."""

from __future__ import annotations

from datetime import datetime, timedelta

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.table_cells import AGE, NAME, NONE, UNSET, age_of, format_selector, name_of
from torchyard.api.times import human_duration


def _binding_cells(binding: Object, now: datetime) -> list[Cell]:
    ref = binding.get("roleRef") or {}
    subjects = binding.get("subjects") or ()
    return [
        name_of(binding),
        f"{ref.get('kind', '')}/{ref.get('name', '')}",
        age_of(binding, now),
        *(
            ", ".join(subject["name"] for subject in subjects if subject.get("kind") == kind)
            for kind in ("User", "Group")
        ),
        ", ".join(
            f"{subject.get('namespace', '')}/{subject['name']}"
            for subject in subjects
            if subject.get("kind") == "ServiceAccount"
        ),
    ]


BINDINGS = Columns(
    (
        NAME,
        Column("Role", description="The role that the binding grants."),
        AGE,
        Column("Users", description="The users that the role is granted to.", priority=1),
        Column("Groups", description="The groups that the role is granted to.", priority=1),
        Column("ServiceAccounts", description="The service accounts that the role is granted to.", priority=1),
    ),
    _binding_cells,
)


def _webhook_cells(configuration: Object, now: datetime) -> list[Cell]:
    return [name_of(configuration), len(configuration.get("webhooks") or ()), age_of(configuration, now)]


WEBHOOKS = Columns(
    (NAME, Column("Webhooks", "integer", description="The number of webhooks in the configuration."), AGE),
    _webhook_cells,
)


def _policy_cells(policy: Object, now: datetime) -> list[Cell]:
    spec = policy.get("spec") or {}
    kind = spec.get("paramKind")
    param_kind = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
    return [name_of(policy), len(spec.get("validations") or ()), param_kind, age_of(policy, now)]


ADMISSION_POLICIES = Columns(
    (
        NAME,
        Column("Validations", "integer", description="The number of validations."),
        Column("ParamKind", description="The kind of the policy's parameters."),
        AGE,
    ),
    _policy_cells,
)


def _policy_binding_cells(binding: Object, now: datetime) -> list[Cell]:
    spec = binding.get("spec") or {}
    parameter = spec.get("paramRef")
    param_ref = UNSET
    if parameter and parameter.get("name"):
        param_ref = f"{parameter.get('namespace') or '*'}/{parameter['name']}"
    elif parameter:
        param_ref = format_selector(parameter.get("selector"))
    return [name_of(binding), spec.get("policyName") or "", param_ref, age_of(binding, now)]


ADMISSION_POLICY_BINDINGS = Columns(
    (
        NAME,
        Column("PolicyName", description="The policy that the binding enables."),
        Column("ParamRef", description="The parameters that the binding passes to the policy."),
        AGE,
    ),
    _policy_binding_cells,
)


def _signing_request_cells(request: Object, now: datetime) -> list[Cell]:
    spec = request.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    return [
        name_of(request),
        age_of(request, now),
        spec.get("signerName") or NONE,
        spec.get("username") or "",
        NONE if seconds is None else human_duration(timedelta(seconds=seconds)),
        _signing_status(request.get("status") or {}),
    ]


def _signing_status(status: Object) -> str:
    kinds = {condition.get("type") for condition in status.get("conditions") or ()}
    word = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    failed = ",Failed" if "Failed" in kinds else ""
    return f"{word}{failed}{',Issued' if status.get('certificate') else ''}"


SIGNING_REQUESTS = Columns(
    (
        NAME,
        AGE,
        Column("SignerName", description="The signer that is requested."),
        Column("Requestor", description="The user that created the request."),
        Column("RequestedDuration", description="The requested lifetime of the certificate."),
        Column("Condition", description="The status of the request."),
    ),
    _signing_request_cells,
)


def _api_service_cells(api_service: Object, now: datetime) -> list[Cell]:
    service = (api_service.get("spec") or {}).get("service")
    available = "Unknown"
    for condition in (api_service.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Available":
            status = condition.get("status", "")
            available = status if status == "True" else f"{status} ({condition.get('reason', '')})"
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    return [name_of(api_service), where, available, age_of(api_service, now)]


API_SERVICES = Columns(
    (
        NAME,
        Column("Service", description="The service that serves the API."),
        Column("Available", description="Whether the API is available."),
        AGE,
    ),
    _api_service_cells,
)


def _flow_schema_cells(schema: Object, now: datetime) -> list[Cell]:
    spec = schema.get("spec") or {}
    missing = "?"
    for condition in (schema.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Dangling":
            missing = condition.get("status", "")
    return [
        name_of(schema),
        (spec.get("priorityLevelConfiguration") or {}).get("name") or "",
        spec.get("matchingPrecedence") or 0,
        (spec.get("distinguisherMethod") or {}).get("type") or NONE,
        age_of(schema, now),
        missing,
    ]


FLOW_SCHEMAS = Columns(
    (
        NAME,
        Column("PriorityLevel", description="The priority level of the requests."),
        Column("MatchingPrecedence", description="Schemas with a lower precedence are matched first."),
        Column("DistinguisherMethod", description="How requests are divided into flows."),
        AGE,
        Column("MissingPL", description="Whether the priority level is missing."),
    ),
    _flow_schema_cells,
)


def _priority_level_cells(level: Object, now: datetime) -> list[Cell]:
    spec = level.get("spec") or {}
    limited = spec.get("limited") or {}
    queuing = (limited.get("limitResponse") or {}).get("queuing") or {}
    return [
        name_of(level),
        spec.get("type") or "",
        limited.get("nominalConcurrencyShares", NONE),
        *(queuing.get(field, NONE) for field in ("queues", "handSize", "queueLengthLimit")),
        age_of(level, now),
    ]


PRIORITY_LEVELS = Columns(
    (
        NAME,
        Column("Type", description="Limited or Exempt."),
        Column("NominalConcurrencyShares", description="The share of the server's concurrency."),
        Column("Queues", description="The number of queues."),
        Column("HandSize", description="The number of queues per flow."),
        Column("QueueLengthLimit", description="The maximum length of a queue."),
        AGE,
    ),
    _priority_level_cells,
)
