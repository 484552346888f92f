"""The `elasticdl` command: ElasticDL's verbs and flags, and the few it lacked (status, scale, stop)."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.elasticdl import flags, pods, zoo
from torchyard.elasticdl.flag_values import BadFlag
from torchyard.kube import kubeconfig
from torchyard.kube.client import Client
from torchyard.kube.connect import open_client


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    whole = parser()
    if not arguments:
        whole.print_help(sys.stderr)
        return 1
    # Unknown flags are passed over, as ElasticDL does, but not in silence: most are typing errors.
    given, unknown = whole.parse_known_args(arguments)
    for flag in unknown:
        sys.stderr.write(f"warning: {flag} is not known and has no effect\n")
    try:
        code: int = given.call(given)
    except YardError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 1
    return code


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="elasticdl", description="Elastic training on Kubernetes.")
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    zoo.add(verbs)
    _verb(verbs, "train", _train, "submit a training job", flags.COMMON + flags.TRAIN)
    _verb(verbs, "evaluate", _keras_only, "not supported", flags.COMMON + flags.EVALUATE)
    _verb(verbs, "predict", _keras_only, "not supported", flags.COMMON + flags.PREDICT)
    job = (flags.Flag("job_name", required=True), flags.Flag("namespace", "default"))
    _verb(verbs, "status", _status, "show a job's pods", job)
    scale = _verb(verbs, "scale", _scale, "change the number of workers", job)
    scale.add_argument("--num_workers", type=int, required=True)
    _verb(verbs, "stop", _stop, "delete a job: its master, and with it its workers", job)
    return whole


def _verb(verbs: Any, name: str, call: Any, text: str, known: tuple[flags.Flag, ...]) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
    flags.add(made, known)
    made.set_defaults(call=call)
    return made


def _keras_only(given: argparse.Namespace) -> int:
    raise BadFlag(
        "evaluate and predict run ElasticDL's own Keras loop, which is not supported",
        hint="evaluate in the program that trains, or run a program of yours as a pod",
    )


def master_command(given: argparse.Namespace) -> str:
    """Everything the master must know, as the command line its pod runs."""
    told = flags.told(given, tuple(flag for flag in flags.COMMON + flags.TRAIN if flag.name not in CLIENT_ONLY))
    command = shlex.join(["python", "-m", "elasticdl.python.master.main", *told])
    if given.log_file_path:
        command += f" 2>&1 | tee {shlex.quote(given.log_file_path)}"
    return f"set -o pipefail; {command}"


CLIENT_ONLY = ("force_use_kube_config_file", "yaml")


def _train(given: argparse.Namespace) -> int:
    flags.check_training(given)
    pod = pods.master(given, master_command(given))
    pods.worker(
        given, 0, owner={"metadata": {"name": "", "uid": ""}}, variables={}, start=""
    )  # judged before it is needed
    if given.yaml:
        Path(given.yaml).write_text(yaml.safe_dump(pod, sort_keys=False))
        print(f"wrote the master pod of {given.job_name} to {given.yaml}")  # noqa: T201
        return 0

    async def submit(client: Client) -> str:
        try:
            await client.create(PODS, pod)
        except StatusError as error:
            if error.status != 409:
                raise
            raise BadFlag(
                f"there is a job {given.job_name} in {given.namespace} already",
                hint=f"choose another --job_name, or: elasticdl stop --job_name {given.job_name}",
            ) from error
        return f"submitted {given.job_name}; its master is the pod {pod['metadata']['name']}"

    return _with_client(submit)


def _with_client(work: Callable[[Client], Awaitable[str]]) -> int:
    async def run() -> str:
        async with open_client(kubeconfig.load(), "elasticdl") as client:
            return await work(client)

    print(asyncio.run(run()))  # noqa: T201
    return 0


def _status(given: argparse.Namespace) -> int:
    async def look(client: Client) -> str:
        found = (await client.list(PODS, given.namespace, labels=pods.selector(given.job_name))).items
        if not found:
            raise BadFlag(f"there is no job {given.job_name} in {given.namespace}")
        lines = [f"{'POD':<48} {'PHASE':<10} STATUS"]
        for pod in sorted(
            found, key=lambda one: (one["metadata"]["labels"].get(pods.TYPE) == pods.WORKER, one["metadata"]["name"])
        ):
            metadata = pod["metadata"]
            lines.append(
                f"{metadata['name']:<48} {pod['status'].get('phase', ''):<10} {metadata['labels'].get('status', '')}"
            )
        return "\n".join(lines)

    return _with_client(look)


def _scale(given: argparse.Namespace) -> int:
    async def scale(client: Client) -> str:
        patch = {"metadata": {"annotations": {pods.WANTED: str(given.num_workers)}}}
        await client.patch(PODS, pods.master_name(given.job_name), patch, given.namespace)
        return f"asked for {given.num_workers} workers"

    return _with_client(scale)


def _stop(given: argparse.Namespace) -> int:
    async def stop(client: Client) -> str:
        await client.delete(PODS, pods.master_name(given.job_name), given.namespace)
        return f"deleted {pods.master_name(given.job_name)}"

    return _with_client(stop)
