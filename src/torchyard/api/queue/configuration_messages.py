"""Kueue's configuration file, features that are not supported, and how a cluster's own Kueue treats jobs."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.queue import names

# Whether and how a cluster's Kueue manages PyTorchJobs.
KUEUE_NOT_CHECKED = "not checked yet"
NO_KUEUE_MANAGER = "no Kueue manager is deployed: its CRDs alone admit nothing"


def kueue_not_served() -> str:
    return f"the API group {names.GROUP} is not served"


def kueue_versions_unsupported(served: Iterable[str]) -> str:
    return f"{names.GROUP} is served in {', '.join(served)}; {names.OLD} or {names.STORED} is needed"


def kueue_served(version: str) -> str:
    return f"{names.GROUP}/{version} is served"


def kueue_not_usable(why: object) -> str:
    return f"the API group {names.GROUP} is served, but {why}"


def kueue_version_needed() -> str:
    return (
        f"{names.GROUP}/{names.STORED} is not served: only Kueue's built-in integration can create workloads for jobs"
    )


def webhook_found(webhook: str, kind: str) -> str:
    return f"the webhook {webhook} exists: Kueue's built-in integration for {kind} is on"


def webhook_not_found(webhook: str, kind: str) -> str:
    return f"the webhook {webhook} does not exist: Kueue leaves {kind} to an external integration"


def framework_on(framework: str, kind: str) -> str:
    return f"Kueue's configuration lists {framework}: its built-in integration for {kind} is on"


def framework_off(framework: str, kind: str) -> str:
    return f"Kueue's configuration does not list {framework}: Kueue leaves {kind} to an external integration"


def configuration_not_readable(framework: str) -> str:
    return f"Kueue's configuration cannot be read; ask the administrator to list {framework} in it"


def framework_not_listed(framework: str) -> str:
    return f"list {framework} under integrations.externalFrameworks, or Kueue may queue the pods a second time"


# Kueue's configuration file.
TOPOLOGIES_UNSUPPORTED = "topologies are not supported; remove the field"
MULTIKUEUE_UNSUPPORTED = "MultiKueue is not supported; remove the field or use another controller"
MULTIKUEUE_JOB_UNSUPPORTED = "MultiKueue is not supported: no other cluster would run the job; remove the field"
PROVISIONING_REQUESTS_UNSUPPORTED = "ProvisioningRequests are not supported; remove the check or use another controller"
CONCURRENT_ADMISSION_UNSUPPORTED = "concurrent admission is not supported; remove the field"
PREBUILT_UNSUPPORTED = (
    "prebuilt workloads are not supported: the workload of a job is created from its pods; remove the label"
)
STATEFULSETS_UNSUPPORTED = (
    f"StatefulSets are not queued; remove the label, or set {names.QUEUE_NAME} in spec.template.metadata.labels,"
    " which queues the pods one by one"
)
CONFIGURATION_HINT = "correct or remove these fields"
CONFIGURATION_FIELD_UNSUPPORTED = "not supported by the queues of this plane"
CONFIGURATION_FIELD_UNKNOWN = "unknown field"
CONFIGURATION_NEGATIVE_WEIGHT = "must be a number, 0 or more"
CONFIGURATION_NOT_A_MAPPING = "must be a mapping of fields to values"
CONFIGURATION_NOT_A_LIST = "must be a list of names"
CONFIGURATION_NOT_POSITIVE = "must be greater than 0"


def field_ignored(field: str, setting: str) -> str:
    return (
        f"{field} has no effect: {setting} is not enabled; add it to the file of `yard up --queue-config`,"
        " or remove the field"
    )


def configuration_not_yaml(error: object) -> str:
    return f"the queue configuration is not valid YAML: {error}"


def configuration_invalid(errs: Iterable[str]) -> str:
    return f"the queue configuration is invalid: {'; '.join(errs)}"
