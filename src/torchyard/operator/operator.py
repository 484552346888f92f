"""The operator: the PyTorchJob, JobSet and TrainJob controllers on a cluster, of which one replica acts at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.api.jobset import names as jobset
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.trainjob import names as trainjob
from torchyard.controllers.job_metrics import JobStateMetrics
from torchyard.controllers.job_traces import JobTraceExporter
from torchyard.controllers.jobset import JOBSETS, JobSetController
from torchyard.controllers.jobset_metrics import JobSetMetrics
from torchyard.controllers.otlp import OtlpSettings
from torchyard.controllers.pytorchjob import JOBS, PyTorchJobController
from torchyard.controllers.trainjob import TRAINJOBS, TrainJobController
from torchyard.controllers.trainjob_runtimes import create_runtimes
from torchyard.core.pytorchjob.view import PyTorchJobSettings
from torchyard.core.trainjob.status_server import StatusServer
from torchyard.kube.client import Client
from torchyard.kube.concurrency import ConcurrencyLimiter
from torchyard.kube.http import HttpTransport
from torchyard.kube.informer import Informer
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.kubeconfig import Connection
from torchyard.kube.leader_election import LeaderElector
from torchyard.kube.supervisor import Part, Supervisor
from torchyard.kube.supervisor_metrics import supervisor_metrics
from torchyard.operator.admission import (
    review_defaults,
    review_jobset_defaults,
    review_jobset_validation,
    review_validation,
)
from torchyard.operator.certificates import WebhookCertificates
from torchyard.operator.checks import MissingPermissions
from torchyard.operator.clock import ServerClock, local
from torchyard.operator.http import Answer, HealthProbes, metrics_app, serve, webhook_app
from torchyard.operator.metrics import OperatorMetrics
from torchyard.operator.part_checks import PartChecks, without_parts
from torchyard.operator.progress import OperatorProgress
from torchyard.operator.queues import KueueWatcher
from torchyard.operator.samples import OperatorSamples
from torchyard.operator.settings import LEASE, NAME, OperatorSettings
from torchyard.operator.tasks import Runnable, run_until_first_exit
from torchyard.operator.trainjob_reviews import TrainJobReviews, review_runtime

log = logging.getLogger(__name__)

_CHECK_RETRY_SECONDS = 5.0
_GRANT_CHECK_SECONDS = 15.0


async def run_operator(connection: Connection, settings: OperatorSettings) -> None:
    """Run until cancelled, or until the lease is lost."""
    while True:
        operator = Operator(connection, settings)
        await operator.run()
        if not operator.starts_again:
            return


class Operator:
    """`run` until cancelled, or until the lease is lost. `health` reports readiness, `ports` the bound ports.

    A part without permissions is left out. When they are granted, `run` ends, and `starts_again` is set.
    """

    def __init__(
        self, connection: Connection, settings: OperatorSettings, *, clock: Callable[[], datetime] = local
    ) -> None:
        self._settings = settings
        self.metrics, self.health = OperatorMetrics(), HealthProbes()
        self._supervisor = Supervisor()
        self.metrics.sources.append(lambda: supervisor_metrics(self._supervisor))
        limiter = ConcurrencyLimiter(maximum=settings.most_requests)
        transport = HttpTransport(
            connection,
            user_agent=NAME,
            limit=settings.most_requests + 2,
            limiter=limiter,
            observe=self.metrics.requested,
        )
        self._client = Client(transport, manager=NAME)
        self.clock = ServerClock(transport, clock)
        # Its own client, so that lease renewals do not wait behind other requests.
        self._lease_client = Client(HttpTransport(connection, user_agent=f"{NAME}-lease", limit=2), manager=NAME)
        self._election = LeaderElector(
            self._lease_client, name=LEASE, namespace=settings.own_namespace, identity=settings.identity
        )
        self.queues = KueueWatcher(
            self._client, namespaces=settings.namespaces, clock=self.clock.now, changed=self.metrics.queue_mode
        )
        # Its own client too: reads of logs wait for kubelets.
        self._log_client = Client(HttpTransport(connection, user_agent=f"{NAME}-logs", limit=8), manager=NAME)
        # And one for what every pod can cause: reviews of tokens.
        tokens = HttpTransport(connection, user_agent=f"{NAME}-tokens", limit=8, observe=self.metrics.requested)
        self._token_client = Client(tokens, manager=NAME)
        self._checks = PartChecks(self._client, settings)
        self._unpermitted: dict[str, MissingPermissions] = {}
        self._samples: OperatorSamples | None = None
        self.starts_again = False
        self.ports: dict[str, int] = {}

    @property
    def leads(self) -> bool:
        return self._election.is_leader or not self._settings.elect

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as closing:
            for client in (self._lease_client, self._log_client, self._token_client, self._client):
                closing.push_async_callback(client.close)
            await self._serve_probes(closing)
            await self._wait_for_cluster()
            self._progress = OperatorProgress(self._client, self._log_client, self._token_client, self._settings)
            await run_until_first_exit(
                *await self._serve(closing), *([self._wait_for_permissions()] if self._unpermitted else ())
            )

    async def _serve_probes(self, closing: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        self.ports["health"] = await serve(self.health.app(), settings.host, settings.health_port, closing=closing)
        self.ports["metrics"] = await serve(
            metrics_app(self.metrics), settings.host, settings.metrics_port, closing=closing
        )

    async def _wait_for_cluster(self) -> None:
        """Repeat the checks until they pass, and report what is missing. Exiting would only cause a restart."""
        logged = ""
        while True:
            try:
                await self._check()
            except YardError as error:
                self.health.problem = str(error)
                if str(error) != logged:
                    logged = str(error)
                    log.warning("cluster not ready: error=%s retry_seconds=%g", error, _CHECK_RETRY_SECONDS)
                await asyncio.sleep(_CHECK_RETRY_SECONDS)
            else:
                return

    async def _check(self) -> None:
        """Raise what the operator cannot start without, and leave out the parts that lack permissions."""
        await self.clock.sync()
        await self._checks.check_required()
        self._unpermitted = await self._checks.find_unpermitted()
        self._settings = without_parts(self._settings, self._unpermitted)
        for part, error in self._unpermitted.items():
            log.warning("part left out: part=%s error=%s retry_seconds=%g", part, error, _GRANT_CHECK_SECONDS)
        self.health.remark = "; ".join(f"{part} left out: {error}" for part, error in self._unpermitted.items())

    async def _wait_for_permissions(self) -> None:
        """Until a part that was left out may run."""
        while True:
            await asyncio.sleep(_GRANT_CHECK_SECONDS)
            try:
                unpermitted = await self._checks.find_unpermitted(self._unpermitted)
            except YardError as error:
                log.warning("permissions not checked: error=%s", error)
                continue
            granted = self._unpermitted.keys() - unpermitted.keys()
            if granted:
                log.info("permissions granted, starting again: parts=%s", ",".join(sorted(granted)))
                self.starts_again = True
                return

    async def _serve(self, closing: contextlib.AsyncExitStack) -> list[Runnable]:
        """Serve admission reviews and reports, which every replica does; returns everything that runs."""
        settings = self._settings
        if settings.samples:
            self._samples = OperatorSamples(self._client, settings, leads=lambda: self.leads)
            await self._samples.load()
            self.ports["samples"] = await serve(
                self._samples.app(), settings.host, settings.samples_port, closing=closing
            )
        if not settings.webhook and not settings.serves_reports:
            return self._runnables()
        directory = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix=f"{NAME}-")))
        certificates = WebhookCertificates(
            self._client,
            directory,
            namespace=settings.own_namespace,
            webhook=settings.webhook,
            jobsets=settings.jobsets,
            trainjobs=settings.trainjobs,
        )
        served = await certificates.serving()
        if settings.webhook:
            app = webhook_app(self._reviews(), self.metrics.reviewed)
            self.ports["webhook"] = await serve(
                app, settings.host, settings.webhook_port, closing=closing, tls=served.context
            )
        status_server = StatusServer(settings.status_url, served.authority) if settings.serves_reports else None
        if settings.serves_reports:
            app = self._progress.endpoint(self.clock.now)
            self.ports["status"] = await serve(
                app, settings.host, settings.status_port, closing=closing, tls=served.context
            )
        renewal = partial(certificates.renew_periodically, served.reload)
        return [*self._runnables(status_server), *self._supervised({"certificates": renewal})]

    def _reviews(self) -> dict[str, Answer]:
        trainjobs = TrainJobReviews(self._client, self.clock.now)
        return {
            "/validate-trainjob": trainjobs.validate,
            "/default-trainjob": trainjobs.set_defaults,
            "/validate-runtime": review_runtime,
            "/validate": review_validation,
            "/validate-jobset": review_jobset_validation,
            "/default-jobset": review_jobset_defaults,
            "/default": lambda review: review_defaults(review, queues=self.queues.creates_workloads),
        }

    def _runnables(self, status_server: StatusServer | None = None) -> list[Runnable]:
        """Fill the caches at once and act when elected, so that the next leader continues without delay."""
        settings = self._settings
        jobs = PyTorchJobSettings(
            gang_scheduler=settings.gang_scheduler, init_image=settings.init_image, init_tries=settings.init_tries
        )
        caches: list[InformerFactory] = []
        controllers: list[PyTorchJobController] = []
        jobsets: list[JobSetController] = []
        trainjobs: list[TrainJobController] = []
        counted: dict[str, list[Informer]] = {}
        sampled: dict[str, list[Informer]] = {}
        for namespace in settings.namespaces or ("",):
            informers = InformerFactory(self._client, namespace=namespace, packed=True)
            controllers.append(
                PyTorchJobController(
                    self._client,
                    informers,
                    jobs,
                    selector=settings.selector,
                    clock=self.clock.now,
                    workers=settings.workers,
                    writes=settings.most_requests,
                    observe=partial(self.metrics.reconciled, pytorchjob.CONTROLLER),
                )
            )
            job_cache = informers.for_resource(JOBS, labels=settings.selector)
            self.metrics.follow(job_cache, lambda: self.leads)
            counted.setdefault(pytorchjob.KIND, []).append(job_cache)
            if settings.jobsets:
                jobsets.append(self._jobset_controller(informers))
                selector = "" if settings.trainjobs else settings.selector  # as the controller's
                sampled.setdefault(jobset.KIND, []).append(informers.for_resource(JOBSETS, labels=selector))
            if settings.trainjobs:
                trainjobs.append(self._trainjob_controller(informers, status_server))
                trainjob_cache = informers.for_resource(TRAINJOBS, labels=settings.selector)
                counted.setdefault(trainjob.KIND, []).append(trainjob_cache)
            if settings.progress:
                self._progress.add(namespace, informers)
            caches.append(informers)
        queues = {pytorchjob.CONTROLLER: [runnable.controller.queue for runnable in controllers]}
        if jobsets:
            ended = partial(JobSetMetrics.merged, [runnable.metrics for runnable in jobsets])
            self.metrics.sources.append(lambda: ended().text() if self.leads else b"")
            queues[jobset.CONTROLLER] = [runnable.controller.queue for runnable in jobsets]
        if trainjobs:
            queues[trainjob.CONTROLLER] = [runnable.controller.queue for runnable in trainjobs]
        states = JobStateMetrics(counted)
        self.metrics.sources.append(lambda: states.text() if self.leads else b"")
        otlp = OtlpSettings.from_environment(os.environ)
        traces = JobTraceExporter(self._client, otlp, leads=lambda: self.leads) if otlp is not None else None
        if traces is not None:
            traces.follow(counted)
        self.metrics.watch_queues(queues)
        self.metrics.watch_leadership(LEASE, lambda: self.leads)

        leading = self._leading_parts([*controllers, *jobsets, *trainjobs])

        async def lead() -> None:
            await run_until_first_exit(*self._supervised(leading))

        parts: dict[str, Part] = {
            **{f"caches-{number}": informers.run for number, informers in enumerate(caches)},
            **(self._progress.parts() if settings.progress else {}),
        }
        if self._samples is not None:
            self._samples.follow({**counted, **sampled})
            parts["samples"] = self._samples.run
        if traces is not None:
            parts["traces"] = traces.run
        return [
            *self._supervised({**parts, "clock": self.clock.run, "queues": self.queues.run}),
            self._become_ready(caches),
            self._election.run(lead) if settings.elect else lead(),
        ]

    def _leading_parts(
        self, controllers: Sequence[PyTorchJobController | JobSetController | TrainJobController]
    ) -> dict[str, Part]:
        """What only the leader does."""
        settings = self._settings
        parts: dict[str, Part] = {
            f"{runnable.controller.name}-{number}": runnable.run for number, runnable in enumerate(controllers)
        }
        parts["queue-integration"] = self.queues.integrate
        if settings.trainjobs:
            parts["runtimes"] = self._create_runtimes
        if settings.progress and settings.log_progress:
            parts["progress-logs"] = self._progress.reader.run
        return parts

    def _supervised(self, parts: dict[str, Part]) -> list[Runnable]:
        """A part that raises is logged, counted and started again; the others go on."""
        return [self._supervisor.run(name, part) for name, part in parts.items()]

    def _jobset_controller(self, informers: InformerFactory) -> JobSetController:
        settings = self._settings
        return JobSetController(
            self._client,
            informers,
            selector=settings.selector,
            clock=self.clock.now,
            workers=settings.workers,
            writes=settings.most_requests,
            observe=partial(self.metrics.reconciled, jobset.CONTROLLER),
            trainjobs=TRAINJOBS if settings.trainjobs else None,
        )

    def _trainjob_controller(
        self, informers: InformerFactory, status_server: StatusServer | None
    ) -> TrainJobController:
        settings = self._settings
        return TrainJobController(
            self._client,
            informers,
            selector=settings.selector,
            clock=self.clock.now,
            workers=settings.workers,
            observe=partial(self.metrics.reconciled, trainjob.CONTROLLER),
            status_server=status_server,
        )

    async def _create_runtimes(self) -> None:
        await create_runtimes(self._client)
        await asyncio.Event().wait()  # the end of a runnable would end the others

    async def _become_ready(self, caches: list[InformerFactory]) -> None:
        for informers in caches:
            await informers.synced()
        self.health.problem = ""
        await asyncio.Event().wait()
