"""The master's process: reads the flags a client handed on, and starts the master again whenever it is killed.

Clients make a bare pod that nobody restarts. So the process that the pod waits for does nothing but that.
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
from torchyard.elasticdl import flags, pods
from torchyard.elasticdl.master import Master, say
from torchyard.kube import kubeconfig
from torchyard.kube.connect import open_client

AT_WORK = "TORCHYARD_ELASTICDL_MASTER"
"""Set in the process that does the work."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="elasticdl.python.master.main", allow_abbrev=False)
    flags.add(parser, flags.COMMON + flags.TRAIN + flags.MASTER)
    # Flags of versions we do not know are passed over, as ElasticDL's own parsers do.
    given, _ = parser.parse_known_args(list(arguments))
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        given = parse(arguments)
        flags.check_training(given)
        if os.environ.get(AT_WORK):
            return asyncio.run(_work(given))
    except YardError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 2
    return _watch_over([sys.executable, "-m", "elasticdl.python.master.main", *arguments])


def _watch_over(command: list[str]) -> int:
    """Until the work is done or fails by itself; a killed one begins again, from its ledger."""
    while True:
        process = subprocess.Popen(command, env={**os.environ, AT_WORK: "1"})

        def hand_on(number: int, frame: Any, process: subprocess.Popen[bytes] = process) -> None:
            process.send_signal(number)
            raise SystemExit(128 + number)

        signal.signal(signal.SIGTERM, hand_on)
        code = process.wait()
        if code >= 0:
            return code
        say(f"the master was ended by {signal.Signals(-code).name}; starting it again")


def state_directory() -> Path:
    """A volume that outlives the container where our client made the pod; the container's own room otherwise."""
    mounted = Path(pods.STATE)
    return mounted if os.access(mounted, os.W_OK) else Path(tempfile.gettempdir()) / "torchyard-master"


async def _work(given: argparse.Namespace) -> int:
    async with open_client(kubeconfig.load(), "elasticdl-master") as client:
        return await Master(given, client, state_directory()).run()
