"""The settings of `yard operator`, and the names of its installation."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.api.samples import OPERATOR_NAMESPACE, OPERATOR_SERVICE

NAME = OPERATOR_SERVICE
NAMESPACE = OPERATOR_NAMESPACE
IMAGE = "torchyard/operator:latest"
LEASE = "operator.torchyard.dev"
WEBHOOK = "validator.torchyard.dev"
DEFAULTS_WEBHOOK = "defaults.torchyard.dev"
TRAINJOB_DEFAULTS_WEBHOOK = "trainjob-defaults.torchyard.dev"
JOBSET_DEFAULTS_WEBHOOK = "jobset-defaults.torchyard.dev"
WEBHOOK_SECRET = f"{NAME}-webhook"
HOST = "0.0.0.0"  # noqa: S104 - probes and the API server come from outside the pod
WORKERS, MOST_REQUESTS = 16, 50  # a quarter of the mutating requests that an API server accepts at once by default
METRICS_PORT, HEALTH_PORT, SAMPLES_PORT, WEBHOOK_PORT, STATUS_PORT = 8080, 8081, 8082, 9443, 10443


def identity() -> str:
    """The lease holder's identity: the pod's name and the process, so that a restarted process differs."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}_{os.urandom(3).hex()}"


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    namespaces: tuple[str, ...] = ()  # namespaces whose jobs are managed; empty: all
    jobsets: bool = True  # whether JobSets are managed too
    trainjobs: bool = True  # whether TrainJobs are managed too
    selector: str = ""  # label selector of the managed jobs
    gang_scheduler: str = ""
    init_image: str = "alpine:3.10"
    init_tries: int = 100
    workers: int = WORKERS
    most_requests: int = MOST_REQUESTS
    own_namespace: str = NAMESPACE
    elect: bool = True
    beside_upstream: bool = False
    host: str = HOST
    metrics_port: int = METRICS_PORT
    health_port: int = HEALTH_PORT
    webhook_port: int = WEBHOOK_PORT
    webhook: bool = True
    progress: bool = True  # whether the progress of jobs is kept
    log_progress: bool = True  # also from what programs print
    status_port: int = STATUS_PORT  # of the endpoint where TrainJobs report
    samples: bool = True  # whether the curves of jobs are kept, and served to consoles
    samples_port: int = SAMPLES_PORT
    samples_directory: Path | None = None  # where they survive a restart
    identity: str = field(default_factory=identity)

    @property
    def serves_reports(self) -> bool:
        """Whether there is an endpoint where the nodes of TrainJobs report."""
        return self.progress and self.trainjobs

    @property
    def status_url(self) -> str:
        """The address of the endpoint for pods: the operator's Service."""
        return f"https://{NAME}.{self.own_namespace}.svc:{STATUS_PORT}"
