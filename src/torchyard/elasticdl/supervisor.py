"""The main process of the master pod: reads the client's flags, and restarts the master whenever it is killed.

Clients create a bare pod, which no controller restarts. So the pod's main process only supervises the master.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError
from torchyard.elastic.agent.agent import create_private_dir
from torchyard.elastic.errors import ElasticError
from torchyard.elasticdl import flags, pods
from torchyard.elasticdl.flag_values import BadFlag
from torchyard.elasticdl.master import Master, log_line
from torchyard.kube import kubeconfig
from torchyard.kube.connect import open_client

MASTER_PROCESS_ENV = "TORCHYARD_ELASTICDL_MASTER"
"""Set in the environment of the master's own process."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="elasticdl.python.master.main", allow_abbrev=False)
    flags.add(parser, flags.COMMON + flags.TRAIN + flags.MASTER)
    # Flags of later versions are ignored, as ElasticDL's own parsers do.
    args, _ = parser.parse_known_args(list(arguments))
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        args = parse(arguments)
        flags.check_training(args)
        if os.environ.get(MASTER_PROCESS_ENV):
            return asyncio.run(_work(args))
    except YardError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 2
    return _supervise_master([sys.executable, "-m", "elasticdl.python.master.main", *arguments])


def _supervise_master(command: list[str]) -> int:
    """Run the master until it exits by itself. A killed master is restarted and resumes from its ledger."""
    while True:
        process = subprocess.Popen(command, env={**os.environ, MASTER_PROCESS_ENV: "1"})

        def forward(number: int, frame: Any, process: subprocess.Popen[bytes] = process) -> None:
            process.send_signal(number)
            raise SystemExit(128 + number)

        signal.signal(signal.SIGTERM, forward)
        code = process.wait()
        if code >= 0:
            return code
        log_line(f"master killed, restarting it: signal={signal.Signals(-code).name}")


def state_directory() -> Path:
    """Return the directory for the job's record and ledger: a volume that outlives the container, if one is mounted."""
    mounted = Path(pods.STATE)
    if os.access(mounted, os.W_OK):
        return mounted
    fallback = Path(tempfile.gettempdir()) / "torchyard-master"
    try:
        create_private_dir(fallback)  # another user of the machine could put a job with a known token there
    except ElasticError as error:
        raise BadFlag(error.message, hint=f"remove it, or mount a volume at {pods.STATE}") from error
    return fallback


async def _work(args: argparse.Namespace) -> int:
    async with open_client(kubeconfig.load(), "elasticdl-master") as client:
        return await Master(args, client, state_directory()).run()
