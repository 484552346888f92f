"""What the parts of the operator need from a cluster. PyTorchJobs are required; a part without permissions is left out.

So an operator of a new version goes on with the roles of an old installation, and says what the rest needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from torchyard.controllers.pytorchjob import pod_group_resource
from torchyard.kube.client import Client
from torchyard.operator import permissions
from torchyard.operator.checks import (
    MissingPermissions,
    check_crd,
    check_jobset_crd,
    check_no_other_jobset_manager,
    check_no_other_operator,
    check_no_other_trainer,
    check_own_namespace,
    check_permissions,
    check_served,
    check_trainjob_crds,
)
from torchyard.operator.settings import (
    DEFAULTS_WEBHOOK,
    JOBSET_DEFAULTS_WEBHOOK,
    LEASE,
    TRAINJOB_DEFAULTS_WEBHOOK,
    WEBHOOK,
    WEBHOOK_SECRET,
    OperatorSettings,
)

JOBSETS, TRAINJOBS, PROGRESS, LOG_PROGRESS, SAMPLES = (
    "jobsets",
    "trainjobs",
    "progress",
    "log_progress",
    "samples",
)  # fields of the settings


class PartChecks:
    def __init__(self, client: Client, settings: OperatorSettings) -> None:
        self._client, self._settings = client, settings
        self._namespaces = settings.namespaces or ("",)
        self._parts: dict[str, Callable[[OperatorSettings], Awaitable[None]]] = {
            JOBSETS: self._check_jobsets,
            TRAINJOBS: self._check_trainjobs,
            PROGRESS: self._check_progress,
            LOG_PROGRESS: self._check_log_progress,
            SAMPLES: self._check_samples,
        }

    async def check_required(self) -> None:
        """What the operator cannot start without."""
        settings, namespaces = self._settings, self._namespaces
        await check_crd(self._client)
        if settings.gang_scheduler:
            groups = pod_group_resource(settings.gang_scheduler)
            await check_served(
                self._client, groups, hint="install the gang scheduler, or leave out --gang-scheduler-name"
            )
        await check_permissions(self._client, permissions.job_permissions(settings.gang_scheduler), namespaces)
        own = permissions.own_namespace_permissions(LEASE, WEBHOOK_SECRET)
        if not settings.webhook and not settings.serves_reports:
            own = [permission for permission in own if permission.resource != "secrets"]
        if settings.webhook:
            await check_permissions(self._client, permissions.webhook_permissions(WEBHOOK, DEFAULTS_WEBHOOK))
        await check_permissions(self._client, own, (settings.own_namespace,))
        if settings.elect or settings.webhook or settings.serves_reports:
            await check_own_namespace(self._client, settings.own_namespace, LEASE)
        if not settings.beside_upstream:
            await check_no_other_operator(self._client, namespaces)

    async def find_unpermitted(self, parts: Iterable[str] = ()) -> dict[str, MissingPermissions]:
        """The parts that are on and lack permissions. Something else that they lack is an error."""
        unpermitted: dict[str, MissingPermissions] = {}
        wanted = set(parts) or set(self._parts)
        for part, check in self._parts.items():
            settings = without_parts(self._settings, unpermitted)
            if part in wanted and getattr(settings, part):
                try:
                    await check(settings)
                except MissingPermissions as error:
                    unpermitted[part] = error
                    if part == JOBSETS and settings.trainjobs:  # TrainJobs run as JobSets
                        unpermitted[TRAINJOBS] = error
        return unpermitted

    async def _check_jobsets(self, settings: OperatorSettings) -> None:
        await check_jobset_crd(self._client)
        await check_permissions(self._client, permissions.jobset_permissions(), self._namespaces)
        if settings.webhook:
            await check_permissions(self._client, permissions.webhook_permissions(WEBHOOK, JOBSET_DEFAULTS_WEBHOOK))
        if not settings.beside_upstream:
            await check_permissions(self._client, permissions.JOBSET_DETECTION)
            await check_no_other_jobset_manager(self._client)

    async def _check_trainjobs(self, settings: OperatorSettings) -> None:
        await check_trainjob_crds(self._client, jobsets=settings.jobsets)
        await check_permissions(self._client, permissions.trainjob_permissions(), self._namespaces)
        await check_permissions(self._client, permissions.RUNTIME_PERMISSIONS)
        if settings.webhook:
            await check_permissions(self._client, permissions.webhook_permissions(WEBHOOK, TRAINJOB_DEFAULTS_WEBHOOK))
        if not settings.beside_upstream:
            await check_permissions(self._client, permissions.TRAINER_DETECTION)
            await check_no_other_trainer(self._client)

    async def _check_progress(self, settings: OperatorSettings) -> None:
        rights = permissions.progress_permissions(jobsets=settings.jobsets or settings.trainjobs)
        await check_permissions(self._client, rights, self._namespaces)
        if settings.serves_reports:
            await check_permissions(self._client, permissions.TOKEN_REVIEWS)

    async def _check_log_progress(self, settings: OperatorSettings) -> None:
        if settings.progress:
            await check_permissions(self._client, permissions.LOG_PERMISSIONS, self._namespaces)

    async def _check_samples(self, settings: OperatorSettings) -> None:
        await check_permissions(self._client, permissions.USAGE_PERMISSIONS, self._namespaces)


def without_parts(settings: OperatorSettings, parts: Iterable[str]) -> OperatorSettings:
    left_out: dict[str, Any] = dict.fromkeys(parts, False)
    return replace(settings, **left_out)
