"""The commands of `python -m torchyard.elastic`, which `yard elastic` offers under the same names."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchyard.elastic import job_record
from torchyard.elastic import run as runner
from torchyard.elastic.agent import pod as pod_agent
from torchyard.elastic.checkpoint import files
from torchyard.elastic.checkpoint.remote import CheckpointStore, is_remote
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.ledger import LedgerEvent, LedgerReader
from torchyard.elastic.parent_death import die_with_parent

DIRECTORY = Path(".torchyard/elastic")
PROGRAM = "python -m torchyard.elastic"


def main(argv: Sequence[str] | None = None, *, prog: str = PROGRAM) -> int:
    args = parser(prog).parse_args(argv)
    try:
        code: int = args.call(args)
    except ElasticError as error:
        sys.stderr.write(f"error: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def parser(prog: str = PROGRAM) -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog=prog, description="Elastic training.")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    run = _add_command(commands, "run", _run, "train on this machine with a changing number of workers")
    run.add_argument("-n", "--workers", type=int, default=1, help="number of workers to start with")
    run.add_argument(
        "--min", type=int, default=1, dest="min_workers", help="pause training below this number of workers"
    )
    run.add_argument("--max", type=int, default=None, dest="max_workers", help="upper limit of `scale`")
    run.add_argument(
        "--multiple-of", type=int, default=1, help="the number of workers in a world must be a multiple of this"
    )
    run.add_argument("--job", default="", help="name of the job (default: the name of its directory)")
    run.add_argument(
        "--lease", type=float, default=1.0, help="seconds without a heartbeat after which a worker is expelled"
    )
    run.add_argument(
        "--hang-after", type=float, default=300.0, help="seconds without progress after which a worker is killed"
    )
    start = run.add_mutually_exclusive_group()
    start.add_argument(
        "--fresh", action="store_true", help="start the job again; set the checkpoints of earlier runs aside"
    )
    start.add_argument(
        "--resume-anyway", action="store_true", help="continue the job although its settings have changed"
    )
    run.add_argument("--cold", action="store_true", help="start workers as new processes instead of forking the zygote")
    run.add_argument("--quiet", action="store_true", help="do not copy the workers' output to the terminal")
    run.add_argument("command", nargs=argparse.REMAINDER, help="-- python train.py ...")
    _add_command(commands, "status", _status, "show the status of the job")
    events = _add_command(commands, "events", _events, "list all events with their causes and durations")
    events.add_argument("--follow", action="store_true", help="keep printing new events")
    scale = _add_command(commands, "scale", _scale, "change the number of workers")
    scale.add_argument("workers", type=int, help="the new number of workers")
    checkpoints = commands.add_parser("checkpoints", help="list, inspect and verify checkpoints")
    checkpoints.add_argument("action", choices=["list", "inspect", "verify"], help="what to do with them")
    checkpoints.add_argument("path", help="a checkpoint, or a directory or URL that contains checkpoints")
    checkpoints.set_defaults(call=_checkpoints)
    pod = commands.add_parser("pod", help="run the worker of a pod and forward signals to it")
    pod.add_argument("command", nargs=argparse.REMAINDER, help="-- python train.py ...")
    pod.set_defaults(call=lambda args: pod_agent.run(runner.strip_separator(args.command)))
    serve = _add_command(
        commands, "coordinator", _coordinator, "serve the coordinator of a job (used by run and by pods)"
    )
    serve.add_argument("--listener", type=int, default=-1, help="file descriptor of an inherited listening socket")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on")
    serve.add_argument("--port", type=int, default=0, help="port to listen on (default: any free port)")
    serve.add_argument(
        "--with-parent", type=int, metavar="PID", help="exit when the process that started this one, PID, exits"
    )
    return root


def _add_command(commands: Any, name: str, call: Any, text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument("--dir", type=Path, default=DIRECTORY, help=f"the job's directory (default {DIRECTORY})")
    command.set_defaults(call=call)
    return command


def _run(args: argparse.Namespace) -> int:
    options = runner.RunOptions(
        runner.strip_separator(args.command),
        args.dir,
        workers=args.workers,
        min_workers=args.min_workers,
        max_workers=args.max_workers,
        multiple_of=args.multiple_of,
        job=args.job,
        lease=args.lease,
        hang_after=args.hang_after,
        zygote=not args.cold,
        quiet=args.quiet,
        resume="fresh" if args.fresh else "anyway" if args.resume_anyway else "auto",
    )
    return runner.run(options)


def _coordinator(args: argparse.Namespace) -> int:
    listener = socket.socket(fileno=args.listener) if args.listener >= 0 else None
    if args.with_parent is not None:
        die_with_parent(args.with_parent)
    asyncio.run(runner.serve_coordinator(args.dir, listener, host=args.host, port=args.port))
    return 0


def request_coordinator(directory: Path, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send one HTTP request to the coordinator of the job in a directory, and return the decoded response."""
    record = job_record.read_record(directory)
    if not record["address"]:
        raise ElasticError("NotRunning", f"the job in {directory} is not running", hint="start it with the run command")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # the address comes from the job's own record
        f"http://{record['address']}{path}", data=data, headers={"Authorization": f"Bearer {record['token']}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        refusal = json.load(error)
        raise ElasticError("Refused", refusal["error"], hint=refusal.get("hint", "")) from error
    except OSError as error:
        raise ElasticError(
            "NotRunning",
            f"no coordinator responds at {record['address']}: {error}",
            hint="check that the job is running",
        ) from error


def _ended(directory: Path) -> LedgerReader | None:
    """Return the ledger of a job that does not run; None if it runs."""
    record = job_record.read_record(directory)
    path = directory / "ledger.db"
    runs = record["address"] and (not record["runner"] or Path(f"/proc/{record['runner']}").exists())
    return None if runs or not path.exists() else LedgerReader(path)


def _status_of_ended(directory: Path, ledger: LedgerReader) -> int:
    step, steps = ledger.progress()
    outcomes = [event for event in ledger.events() if event["reason"] in ("JobFinished", "JobFailed")]
    saved = ledger.checkpoints()
    lines = [
        f"job         {job_record.read_record(directory)['job']}",
        f"phase       {outcomes[-1]['reason'].removeprefix('Job') if outcomes else 'Interrupted'} (it does not run)",
        f"step        {step} of {steps}",
        f"checkpoint  {f'step {saved[-1][0]} at {saved[-1][1]}' if saved else 'none'}",
    ]
    lines += [f"message     {outcomes[-1]['message']}"] if outcomes else []
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _status(args: argparse.Namespace) -> int:
    if (ended := _ended(args.dir)) is not None:
        return _status_of_ended(args.dir, ended)
    status = request_coordinator(args.dir, "/status")
    limits = status["limits"]
    lines = [
        f"job         {status['job']}",
        f"phase       {status['phase']}",
        f"step        {status['step']} of {status['steps']}, epoch {status['epoch']}",
        f"world       {len(status['world'])} of {limits['want']} workers (min {limits['min']}, max {limits['max']})",
        f"generation  {status['generation']}, coordinator incarnation {status['incarnation']}",
    ]
    for name, worker in status["workers"].items():
        lines.append(f"  {name:<12} pid {worker['pid']:<8} step {worker['step']:<8} {worker['phase']}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _print_events(events: Sequence[LedgerEvent]) -> None:
    for event in events:
        at = time.strftime("%H:%M:%S", time.localtime(event["at"]))
        sys.stdout.write(f"{at}.{int(event['at'] * 1000) % 1000:03d}  {event['reason']:<20} {event['message']}\n")
    sys.stdout.flush()


def _events(args: argparse.Namespace) -> int:
    if (ended := _ended(args.dir)) is not None:
        _print_events(ended.events())
        return 0
    last = 0
    while True:
        events = request_coordinator(args.dir, f"/events?after={last}")
        last = events[-1]["id"] if events else last
        _print_events(events)
        if not args.follow:
            return 0
        time.sleep(0.5)


def _checkpoints(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="torchyard-checkpoints-") as temporary:
        return _show(args.action, _fetch(args.path, args.action, Path(temporary)))


def _fetch(path: str, action: str, temporary: Path) -> list[Path]:
    """Return the checkpoints at a path. Those of an object store are copied first: only manifests, unless verified."""
    if is_remote(path):
        store = CheckpointStore(path)
        folders = [store.fetch(name, temporary, manifest_only=action != "verify") for name in store.names()]
    else:
        root = Path(path)
        if not root.is_dir():
            raise ElasticError(
                "NoCheckpoints", f"{root} is not a directory", hint="pass a directory that contains checkpoints"
            )
        single = (root / files.MANIFEST).exists() or root.name.startswith(files.PREFIX)
        folders = [root] if single else files.list_checkpoints(root)
    if not folders:
        raise ElasticError("NoCheckpoints", f"there is no checkpoint in {path}", hint="check the path")
    return folders


def _show(action: str, folders: list[Path]) -> int:
    code = 0
    for folder in folders:
        try:
            manifest = files.verify(folder) if action == "verify" else files.read_manifest(folder)
        except ElasticError as error:
            sys.stdout.write(f"{folder.name}  {error.code}: {error.message}\n")
            code = 1
            continue
        if action == "inspect":
            sys.stdout.write(json.dumps(asdict(manifest), indent=1) + "\n")
            continue
        size = sum(facts["size"] for facts in manifest.files.values())
        verdict = "  valid" if action == "verify" else ""
        sys.stdout.write(f"{folder.name}  step {manifest.step}  {size} bytes  sha256 {manifest.sha256[:16]}{verdict}\n")
    return code


def _scale(args: argparse.Namespace) -> int:
    response = request_coordinator(args.dir, "/scale", {"workers": args.workers})
    sys.stdout.write(f"scaled to {response['workers']} workers\n")
    return 0
