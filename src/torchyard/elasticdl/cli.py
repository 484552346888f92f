"""The `elasticdl` command: ElasticDL's commands and flags, and three of its own (status, scale, stop)."""

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
    root = parser()
    if not arguments:
        root.print_help(sys.stderr)
        return 1
    # Unknown flags are ignored, as in ElasticDL, but with a warning: most are typing errors.
    args, unknown = root.parse_known_args(arguments)
    for flag in unknown:
        sys.stderr.write(f"warning: {flag} is not a known flag and has no effect\n")
    try:
        code: int = args.call(args)
    except YardError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 1
    return code


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="elasticdl", description="Elastic training on Kubernetes.")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    zoo.add(commands)
    _add_command(commands, "train", _train, "submit a training job", flags.COMMON + flags.TRAIN)
    _add_command(commands, "evaluate", _keras_only, "not supported", flags.COMMON + flags.EVALUATE)
    _add_command(commands, "predict", _keras_only, "not supported", flags.COMMON + flags.PREDICT)
    job = (flags.Flag("job_name", required=True), flags.Flag("namespace", "default"))
    _add_command(commands, "status", _status, "show a job's pods", job)
    scale = _add_command(commands, "scale", _scale, "change the number of workers", job)
    scale.add_argument("--num_workers", type=int, required=True, help="the new number of workers")
    _add_command(commands, "stop", _stop, "delete the master of a job, and with it the workers", job)
    return root


def _add_command(
    commands: Any, name: str, call: Any, text: str, known_flags: tuple[flags.Flag, ...]
) -> argparse.ArgumentParser:
    command_parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    flags.add(command_parser, known_flags)
    command_parser.set_defaults(call=call)
    return command_parser


def _keras_only(args: argparse.Namespace) -> int:
    raise BadFlag(
        "evaluate and predict are not supported: they run ElasticDL's own Keras loop",
        hint="evaluate in the training program, or run your own program as a pod",
    )


def master_command(args: argparse.Namespace) -> str:
    """Return the command line of the master's pod, with all flags that the master needs."""
    command_flags = flags.to_command_line(
        args, tuple(flag for flag in flags.COMMON + flags.TRAIN if flag.name not in CLIENT_ONLY)
    )
    command = shlex.join(["python", "-m", "elasticdl.python.master.main", *command_flags])
    if args.log_file_path:
        command += f" 2>&1 | tee {shlex.quote(args.log_file_path)}"
    return f"set -o pipefail; {command}"


CLIENT_ONLY = ("force_use_kube_config_file", "yaml")


def _train(args: argparse.Namespace) -> int:
    flags.check_training(args)
    pod = pods.master(args, master_command(args))
    pods.worker(
        args, 0, owner={"metadata": {"name": "", "uid": ""}}, variables={}, start=""
    )  # validate the worker's flags before anything is created
    if args.yaml:
        Path(args.yaml).write_text(yaml.safe_dump(pod, sort_keys=False))
        print(f"wrote the master pod of {args.job_name} to {args.yaml}")  # noqa: T201
        return 0

    async def submit(client: Client) -> str:
        try:
            await client.create(PODS, pod)
        except StatusError as error:
            if error.status != 409:
                raise
            raise BadFlag(
                f"job {args.job_name} already exists in namespace {args.namespace}",
                hint=f"choose another --job_name, or: elasticdl stop --job_name {args.job_name}",
            ) from error
        return f"submitted {args.job_name}; its master is pod {pod['metadata']['name']}"

    return _with_client(submit)


def _with_client(work: Callable[[Client], Awaitable[str]]) -> int:
    async def run() -> str:
        async with open_client(kubeconfig.load(), "elasticdl") as client:
            return await work(client)

    print(asyncio.run(run()))  # noqa: T201
    return 0


def _status(args: argparse.Namespace) -> int:
    async def show(client: Client) -> str:
        job_pods = (await client.list(PODS, args.namespace, labels=pods.selector(args.job_name))).items
        if not job_pods:
            raise BadFlag(f"there is no job {args.job_name} in namespace {args.namespace}")
        lines = [f"{'POD':<48} {'PHASE':<10} STATUS"]
        for pod in sorted(
            job_pods, key=lambda pod: (pod["metadata"]["labels"].get(pods.TYPE) == pods.WORKER, pod["metadata"]["name"])
        ):
            metadata = pod["metadata"]
            lines.append(
                f"{metadata['name']:<48} {pod['status'].get('phase', ''):<10} {metadata['labels'].get('status', '')}"
            )
        return "\n".join(lines)

    return _with_client(show)


def _scale(args: argparse.Namespace) -> int:
    if args.num_workers < 1:
        raise BadFlag(f"--num_workers={args.num_workers}: the number must be at least 1")

    async def scale(client: Client) -> str:
        patch = {"metadata": {"annotations": {pods.WORKERS_ANNOTATION: str(args.num_workers)}}}
        await client.patch(PODS, pods.master_name(args.job_name), patch, args.namespace)
        return f"requested {args.num_workers} workers"

    return _with_client(scale)


def _stop(args: argparse.Namespace) -> int:
    async def stop(client: Client) -> str:
        await client.delete(PODS, pods.master_name(args.job_name), args.namespace)
        return f"deleted {pods.master_name(args.job_name)}"

    return _with_client(stop)
