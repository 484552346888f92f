"""`yard operator`, `install`, `uninstall`: the controllers on a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, Record, for_programs, show_records
from torchyard.cli.target import Context, Kubeconfig, run_with_client
from torchyard.operator import settings as defaults

if TYPE_CHECKING:
    from torchyard.kube.client import Client

Gang = Annotated[
    str,
    typer.Option(
        "--gang-scheduler-name",
        metavar="NAME",
        help="Gang scheduler: volcano, or a scheduler with scheduler-plugins. Default: none.",
    ),
]


def operator(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Reconcile jobs of this namespace only. May be repeated.")
    ] = None,
    selector: Annotated[str, typer.Option(metavar="LABELS", help="Reconcile jobs with these labels only.")] = "",
    jobsets: Annotated[bool, typer.Option(help="Reconcile JobSets too.")] = True,
    trainjobs: Annotated[bool, typer.Option(help="Reconcile TrainJobs too.")] = True,
    gang_scheduler_name: Gang = "",
    pytorch_init_container_image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Image of the init container in which workers wait for the master.")
    ] = "alpine:3.10",
    pytorch_init_container_max_tries: Annotated[
        int, typer.Option(metavar="N", min=1, help="Attempts of the init container to resolve the master.")
    ] = 100,
    controller_threads: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of jobs reconciled concurrently.")
    ] = defaults.WORKERS,
    most_requests: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Maximum number of concurrent requests; the operator lowers it when the server throttles.",
        ),
    ] = defaults.MOST_REQUESTS,
    own_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the operator's lease and certificates.")
    ] = defaults.NAMESPACE,
    leader_elect: Annotated[bool, typer.Option(help="Reconcile only while holding the lease.")] = True,
    webhook: Annotated[bool, typer.Option(help="Serve the webhooks for PyTorchJobs and JobSets.")] = True,
    progress: Annotated[bool, typer.Option(help="Keep the progress of jobs.")] = True,
    log_progress: Annotated[bool, typer.Option(help="Read the progress of jobs from the logs of their pods.")] = True,
    samples: Annotated[
        bool, typer.Option(help="Keep curves of jobs, their usage and their progress, for the console.")
    ] = True,
    samples_directory: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Where the curves survive a restart. Default: only in memory."),
    ] = None,
    beside_upstream: Annotated[
        bool, typer.Option("--beside-upstream", help="Start even if another training operator is running.")
    ] = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = defaults.HOST,
    metrics_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port of /metrics.")
    ] = defaults.METRICS_PORT,
    health_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port of /healthz and /readyz.")
    ] = defaults.HEALTH_PORT,
    webhook_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port of the webhook.")
    ] = defaults.WEBHOOK_PORT,
    status_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port where TrainJobs report their progress.")
    ] = defaults.STATUS_PORT,
    samples_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port where consoles read curves.")
    ] = defaults.SAMPLES_PORT,
) -> None:
    """Reconcile the PyTorchJobs, JobSets and TrainJobs of a cluster until stopped.

    Example: yard operator --context prod
    """
    from torchyard.kube.kubeconfig import load
    from torchyard.kube.process import prefer_uvloop, tune_garbage_collector
    from torchyard.operator.logs import set_up
    from torchyard.operator.operator import run_operator

    settings = defaults.OperatorSettings(
        namespaces=tuple(namespace or ()),
        jobsets=jobsets,
        trainjobs=trainjobs,
        selector=selector,
        gang_scheduler=gang_scheduler_name,
        init_image=pytorch_init_container_image,
        init_tries=pytorch_init_container_max_tries,
        workers=controller_threads,
        most_requests=most_requests,
        own_namespace=own_namespace,
        elect=leader_elect,
        webhook=webhook,
        beside_upstream=beside_upstream,
        host=host,
        metrics_port=metrics_port,
        health_port=health_port,
        webhook_port=webhook_port,
        progress=progress,
        log_progress=log_progress,
        status_port=status_port,
        samples=samples,
        samples_port=samples_port,
        samples_directory=samples_directory,
    )
    set_up()
    connection = load(kubeconfig, context=context)
    logging.getLogger(__name__).info("operator started: identity=%s server=%s", settings.identity, connection.server)

    async def run() -> None:
        tune_garbage_collector()
        await _until_signal(lambda: run_operator(connection, settings))

    prefer_uvloop()
    asyncio.run(run())


def install(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Namespace of the operator.")] = defaults.NAMESPACE,
    watch_namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Reconcile jobs of this namespace only, with a Role there. May be repeated."),
    ] = None,
    image: Annotated[str, typer.Option(metavar="IMAGE", help="Image of the operator.")] = defaults.IMAGE,
    replicas: Annotated[int, typer.Option(metavar="N", min=1, help="Number of replicas; one is the leader.")] = 2,
    gang_scheduler_name: Gang = "",
    jobsets: Annotated[
        bool | None, typer.Option(help="Run JobSets. Default: unless upstream's JobSet manager is installed.")
    ] = None,
    trainjobs: Annotated[
        bool | None,
        typer.Option(help="Run TrainJobs, which need JobSets. Default: unless Kubeflow Trainer is installed."),
    ] = None,
    progress: Annotated[bool, typer.Option(help="Keep the progress of jobs.")] = True,
    log_progress: Annotated[
        bool, typer.Option(help="Read the progress of jobs from the logs of their pods; needs the right to read them.")
    ] = True,
    samples: Annotated[
        bool, typer.Option(help="Keep curves of jobs for the console; needs the right to read metrics.k8s.io.")
    ] = True,
    samples_claim: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="PersistentVolumeClaim in the operator's namespace where the curves survive a restart; with more than"
            " one replica it must be ReadWriteMany. Default: only in memory.",
        ),
    ] = "",
    queues: Annotated[
        bool | None,
        typer.Option(help="Create Workloads for Kueue. Default: if Kueue runs and does not do so for PyTorchJobs."),
    ] = None,
    monitoring: Annotated[
        bool,
        typer.Option(
            "--monitoring", help="Add monitors, alerts and Grafana dashboards. Needs the Prometheus Operator."
        ),
    ] = False,
    crds_only: Annotated[bool, typer.Option("--crds-only", help="Install only the CustomResourceDefinitions.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifests and change nothing.")] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Install or upgrade the operator on a cluster.

    Example: yard install --context prod --image registry.example.com/torchyard:0.2.0
    """
    from torchyard.core.queue.kueue_detection import IntegrationMode
    from torchyard.kube.kubeconfig import load
    from torchyard.operator import install as installer
    from torchyard.operator.checks import has_upstream_jobset
    from torchyard.operator.diagnosis import is_plane
    from torchyard.operator.manifests import Installation, as_yaml, definitions, objects, sdk_objects
    from torchyard.operator.monitoring import monitoring_objects
    from torchyard.operator.queues import inspect_kueue

    installation = Installation(
        image,
        namespace,
        replicas=replicas,
        gang_scheduler=gang_scheduler_name,
        watched=tuple(watch_namespace or ()),
        jobsets=jobsets is not False,
        trainjobs=trainjobs is not False,
        progress=progress,
        log_progress=log_progress,
        samples=samples,
        samples_claim=samples_claim,
        queues=bool(queues),
        monitoring=monitoring,
    )
    chosen = Output.name if quiet else output
    if dry_run:
        manifests = [
            *definitions(jobsets=installation.jobsets, trainjobs=installation.trainjobs),
            *([] if crds_only else [*objects(installation), *sdk_objects(installation)]),
            *(monitoring_objects(installation) if monitoring and not crds_only else ()),
        ]
        if chosen in (Output.json, Output.name):
            named = [{"name": f"{obj['kind'].lower()}/{obj['metadata']['name']}", "object": obj} for obj in manifests]
            show_records(named, chosen, columns={}, empty="")
        else:
            say(as_yaml(manifests).rstrip())
        return
    steps = _Steps(chosen)

    async def work(client: Client) -> None:
        if await is_plane(client):
            raise YardError(
                "this is a plane; it runs the controllers itself and needs no operator",
                hint="select a cluster with --context or --kubeconfig",
                code="BadOption",
            )
        if crds_only:
            await installer.install(client, None, steps.add)
            return
        with_queues = (await inspect_kueue(client)).mode is IntegrationMode.EXTERNAL if queues is None else queues
        with_jobsets = not await has_upstream_jobset(client) if jobsets is None else jobsets
        with_trainjobs = await installer.includes_trainjobs(client, trainjobs, steps.add, jobsets=with_jobsets)
        complete = replace(installation, queues=with_queues, jobsets=with_jobsets, trainjobs=with_trainjobs)
        await installer.install(client, complete, steps.add)

    run_with_client(load(kubeconfig, context=context), work)
    steps.show()


class _Steps:
    """What was done with each object: a line at once for people, records at the end for programs."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._records: list[Record] = []

    def add(self, line: str) -> None:
        if not for_programs(self._output):
            say(line)
        name, _, message = line.partition(" ")
        is_object = "/" in name
        self._records.append({"name": name if is_object else "", "message": message if is_object else line})

    def show(self) -> None:
        if for_programs(self._output):
            by_name = [record for record in self._records if record["name"] or self._output is not Output.name]
            show_records(by_name, self._output, columns={}, empty="")


def uninstall(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Namespace of the operator.")] = defaults.NAMESPACE,
    with_jobs: Annotated[
        bool,
        typer.Option(
            "--with-jobs",
            help="Also delete the CustomResourceDefinitions that yard install created, and with them every PyTorchJob,"
            " JobSet, TrainJob, TrainingRuntime and ClusterTrainingRuntime.",
        ),
    ] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Remove the operator from a cluster. Jobs and the CustomResourceDefinitions stay, unless --with-jobs is set.

    Example: yard uninstall --context prod
    """
    from torchyard.kube.kubeconfig import load
    from torchyard.operator import install as installer
    from torchyard.operator.manifests import Installation

    installation = Installation("", namespace)
    steps = _Steps(Output.name if quiet else output)
    run_with_client(
        load(kubeconfig, context=context),
        lambda client: installer.uninstall(client, installation, steps.add, with_definitions=with_jobs),
    )
    steps.show()


async def _until_signal(run: Callable[[], Awaitable[None]]) -> None:
    """Run until SIGTERM or SIGINT, then cancel, so that the operator releases its lease."""
    task = asyncio.ensure_future(run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
