"""The progress of jobs on a cluster: the endpoint of TrainJobs, the logs of all jobs, and what is written of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from aiohttp import web

from torchyard.api.gvr import PODS
from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjobs
from torchyard.api.selectors.labels import parse_labels
from torchyard.api.trainjob import names as trainjobs
from torchyard.controllers.child_caches import managed_pods
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.progress import ProgressController
from torchyard.controllers.progress_logs import PodLogReader
from torchyard.controllers.pytorchjob import JOBS as PYTORCHJOBS
from torchyard.controllers.trainjob import TRAINJOBS
from torchyard.core.progress.log_polling import slim_training_pod, training_container
from torchyard.core.progress.reports import JobReference, ProgressReport
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import Part
from torchyard.operator.settings import OperatorSettings
from torchyard.operator.status_reports import StatusReports
from torchyard.operator.token_reviews import TokenReviewer

_JOB_PODS = "batch.kubernetes.io/job-name"


class OperatorProgress:
    """`add` each namespace that is watched.

    `log_client` reads logs and `token_client` reviews tokens, so that other requests do not wait for them.
    """

    def __init__(self, client: Client, log_client: Client, token_client: Client, settings: OperatorSettings) -> None:
        self._client, self._settings = client, settings
        self._tokens = TokenReviewer(token_client)
        self._selector = parse_labels(settings.selector)
        self._controllers: dict[str, ProgressController] = {}
        self._caches: dict[str, list[Informer]] = {}
        self.reader = PodLogReader(
            log_client, self.publish, is_managed=self._is_managed, container_of=self._container_of
        )

    def add(self, namespace: str, informers: InformerFactory) -> None:
        settings = self._settings
        kinds = {"Job", pytorchjobs.KIND}
        jobset_cache = trainjob_cache = None
        self._keep(pytorchjobs.KIND, informers.for_resource(PYTORCHJOBS, labels=settings.selector))
        if settings.trainjobs or settings.jobsets:
            selector = "" if settings.trainjobs else settings.selector
            jobset_cache = self._keep(jobsets.KIND, informers.for_resource(JOBSETS, labels=selector))
        if settings.jobsets:
            kinds.add(jobsets.KIND)
        if settings.trainjobs:
            kinds.add(trainjobs.KIND)
            trainjob_cache = self._keep(trainjobs.KIND, informers.for_resource(TRAINJOBS, labels=settings.selector))
        self._controllers[namespace] = ProgressController(
            self._client, jobset_cache, trainjob_cache, kinds=frozenset(kinds), has_peers=True
        )
        if settings.log_progress:
            self.reader.follow(managed_pods(informers))
            self.reader.follow(informers.for_resource(PODS, labels=_JOB_PODS, transform=slim_training_pod))

    def _keep(self, kind: str, cache: Informer) -> Informer:
        self._caches.setdefault(kind, []).append(cache)
        return cache

    def endpoint(self, clock: Callable[[], datetime]) -> web.Application:
        reports = StatusReports(self._tokens, self._find_trainjob, self.publish, clock)
        return reports.app()

    def publish(self, report: ProgressReport) -> None:
        controller = self._controllers.get(report.job.namespace) or self._controllers.get("")
        if controller is not None:
            controller.observe(report)

    def parts(self) -> dict[str, Part]:
        """What every replica does: write what was reported to it."""
        return {f"progress-{number}": controller.run for number, controller in enumerate(self._controllers.values())}

    def _find_trainjob(self, namespace: str, name: str) -> Object | None:
        return self._cached(trainjobs.KIND, namespace, name)

    def _cached(self, kind: str, namespace: str, name: str) -> Object | None:
        caches = self._caches.get(kind) or ()
        return next((obj for cache in caches if (obj := cache.get(namespace, name)) is not None), None)

    def _is_managed(self, job: JobReference) -> bool:
        """Plain Jobs are read unless the operator is for some jobs only: their labels are not known."""
        if job.kind == "Job":
            return not self._settings.selector
        obj = self._cached(job.kind, job.namespace, job.name)
        if obj is None:
            return False
        if job.kind != jobsets.KIND or self._find_trainjob(job.namespace, job.name) is not None:
            return True
        return self._settings.jobsets and self._selector.matches(obj["metadata"].get("labels"))

    def _container_of(self, job: JobReference, pod: Object) -> Object | None:
        """Of the pods of PyTorchJobs the cache has no containers; the job has them."""
        if job.kind != pytorchjobs.KIND:
            return training_container(pod)
        obj = self._cached(job.kind, job.namespace, job.name)
        if obj is None:
            return None
        replicas = obj["spec"].get("pytorchReplicaSpecs") or {}
        role = (pod["metadata"].get("labels") or {}).get(pytorchjobs.REPLICA_TYPE, "")
        for name, replica in replicas.items():
            if name.lower() == role:
                return training_container({"metadata": {}, "spec": (replica.get("template") or {}).get("spec")})
        return None
