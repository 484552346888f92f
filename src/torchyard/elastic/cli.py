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

from torchyard.elastic import run as runner
from torchyard.elastic.agent import pod as pod_agent
from torchyard.elastic.agent.parent_death import die_with_parent
from torchyard.elastic.checkpoint import files
from torchyard.elastic.checkpoint.remote import CheckpointStore, is_remote
from torchyard.elastic.errors import ElasticError

DIRECTORY = Path(".torchyard/elastic")
PROGRAM = "python -m torchyard.elastic"


def main(argv: Sequence[str] | None = None, *, prog: str = PROGRAM) -> int:
    arguments = parser(prog).parse_args(argv)
    try:
        code: int = arguments.call(arguments)
    except ElasticError as error:
        sys.stderr.write(f"error: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def parser(prog: str = PROGRAM) -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog=prog, description="Elastic training.")
    verbs = whole.add_subparsers(required=True, metavar="COMMAND")
    run = _verb(verbs, "run", _run, "train on this machine, with workers that may come and go")
    run.add_argument("-n", "--workers", type=int, default=1, help="workers to start with")
    run.add_argument("--min", type=int, default=1, dest="least", help="pause below this many")
    run.add_argument("--max", type=int, default=None, dest="most", help="the most that `scale` may ask for")
    run.add_argument("--multiple-of", type=int, default=1, help="a world must be a multiple of this")
    run.add_argument("--job", default="", help="name of the job; the directory's name unless given")
    run.add_argument("--lease", type=float, default=1.0, help="seconds of silence after which a worker is out")
    run.add_argument(
        "--hang-after", type=float, default=300.0, help="seconds without progress before a worker is ended"
    )
    run.add_argument("--cold", action="store_true", help="start workers as new processes, not from the zygote")
    run.add_argument("--quiet", action="store_true", help="do not copy the workers' output to the terminal")
    run.add_argument("command", nargs=argparse.REMAINDER, help="-- python train.py ...")
    _verb(verbs, "status", _status, "what the job is doing")
    events = _verb(verbs, "events", _events, "every decision, with its cause and durations")
    events.add_argument("--follow", action="store_true")
    scale = _verb(verbs, "scale", _scale, "change the number of workers")
    scale.add_argument("workers", type=int)
    saved = verbs.add_parser("checkpoints", help="list, inspect and verify checkpoints")
    saved.add_argument("what", choices=["list", "inspect", "verify"])
    saved.add_argument("path", help="a checkpoint, or the directory or URL that holds them")
    saved.set_defaults(call=_checkpoints)
    pod = verbs.add_parser("pod", help="run a pod's worker, and hand signals on to it")
    pod.add_argument("command", nargs=argparse.REMAINDER, help="-- python train.py ...")
    pod.set_defaults(call=lambda given: pod_agent.run(runner.sequence(given.command)))
    serve = _verb(verbs, "coordinator", _coordinator, "serve the coordinator of a job (used by run and by pods)")
    serve.add_argument("--listener", type=int, default=-1, help="an inherited listening socket")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=0)
    serve.add_argument("--with-parent", action="store_true", help="end when the process that started it ends")
    return whole


def _verb(verbs: Any, name: str, call: Any, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    made.add_argument("--dir", type=Path, default=DIRECTORY, help=f"the job's directory (default {DIRECTORY})")
    made.set_defaults(call=call)
    return made


def _run(given: argparse.Namespace) -> int:
    options = runner.RunOptions(
        runner.sequence(given.command),
        given.dir,
        workers=given.workers,
        least=given.least,
        most=given.most,
        multiple_of=given.multiple_of,
        job=given.job,
        lease=given.lease,
        hang_after=given.hang_after,
        zygote=not given.cold,
        quiet=given.quiet,
    )
    return runner.run(options)


def _coordinator(given: argparse.Namespace) -> int:
    listener = socket.socket(fileno=given.listener) if given.listener >= 0 else None
    if given.with_parent:
        die_with_parent()
    asyncio.run(runner.serve_coordinator(given.dir, listener, host=given.host, port=given.port))
    return 0


def ask(directory: Path, path: str, body: dict[str, Any] | None = None) -> Any:
    """One request to the coordinator of the job in a directory."""
    record = runner.read_record(directory)
    if not record["address"]:
        raise ElasticError("NotRunning", f"the job in {directory} is not running", hint="start it with run")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # the address is our own record's
        f"http://{record['address']}{path}", data=data, headers={"Authorization": f"Bearer {record['token']}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        told = json.load(error)
        raise ElasticError("Refused", told["error"], hint=told.get("hint", "")) from error
    except OSError as error:
        raise ElasticError("NotRunning", f"no coordinator answers at {record['address']}: {error}") from error


def _status(given: argparse.Namespace) -> int:
    status = ask(given.dir, "/status")
    limits = status["limits"]
    lines = [
        f"job         {status['job']}",
        f"phase       {status['phase']}",
        f"step        {status['step']} of {status['steps']}, epoch {status['epoch']}",
        f"world       {len(status['world'])} of {limits['want']} wanted ({limits['min']} to {limits['max']})",
        f"generation  {status['generation']}, coordinator incarnation {status['incarnation']}",
    ]
    for name, worker in status["workers"].items():
        lines.append(f"  {name:<12} pid {worker['pid']:<8} step {worker['step']:<8} {worker['phase']}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _events(given: argparse.Namespace) -> int:
    last = 0
    while True:
        for event in ask(given.dir, f"/events?after={last}"):
            last = event["id"]
            at = time.strftime("%H:%M:%S", time.localtime(event["at"]))
            sys.stdout.write(f"{at}.{int(event['at'] * 1000) % 1000:03d}  {event['reason']:<20} {event['message']}\n")
        sys.stdout.flush()
        if not given.follow:
            return 0
        time.sleep(0.5)


def _checkpoints(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="torchyard-checkpoints-") as fetched:
        return _show(given.what, _folders(given.path, given.what, Path(fetched)))


def _folders(path: str, what: str, fetched: Path) -> list[Path]:
    """The checkpoints at a place; those of a store as local copies, of their manifests only unless all is verified."""
    if is_remote(path):
        store = CheckpointStore(path)
        folders = [store.fetch(name, fetched, manifest_only=what != "verify") for name in store.names()]
    else:
        root = Path(path)
        if not root.is_dir():
            raise ElasticError("NoCheckpoints", f"{root} is not a directory", hint="give where checkpoints are kept")
        single = (root / files.MANIFEST).exists() or root.name.startswith(files.PREFIX)
        folders = [root] if single else files.complete(root)
    if not folders:
        raise ElasticError("NoCheckpoints", f"there is no checkpoint in {path}")
    return folders


def _show(what: str, folders: list[Path]) -> int:
    code = 0
    for folder in folders:
        try:
            manifest = files.verify(folder) if what == "verify" else files.read(folder)
        except ElasticError as error:
            sys.stdout.write(f"{folder.name}  {error.code}: {error.message}\n")
            code = 1
            continue
        if what == "inspect":
            sys.stdout.write(json.dumps(asdict(manifest), indent=1) + "\n")
            continue
        size = sum(facts["size"] for facts in manifest.files.values())
        sound = "  sound" if what == "verify" else ""
        sys.stdout.write(f"{folder.name}  step {manifest.step}  {size} bytes  sha256 {manifest.sha256[:16]}{sound}\n")
    return code


def _scale(given: argparse.Namespace) -> int:
    answer = ask(given.dir, "/scale", {"workers": given.workers})
    sys.stdout.write(f"{answer['workers']} workers wanted\n")
    return 0
