"""`python -m torchyard.node --root DIR [--kubeconfig FILE] [--name NODE]`: a node agent in a process of its own.

It registers with the API server of its kubeconfig. `yard up` runs the same agent in the process of the plane.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
from pathlib import Path

from torchyard.kube import kubeconfig
from torchyard.kube.connect import open_client
from torchyard.kube.log_limit import limit_repeated_lines
from torchyard.node.agent import NodeAgent
from torchyard.node.resources.cgroups import default_pids_limit
from torchyard.node.settings import NodeSettings


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m torchyard.node", description="run a node agent in a process of its own"
    )
    parser.add_argument("--root", type=Path, required=True, help="directory for the state of the node")
    parser.add_argument("--kubeconfig", type=Path, help="kubeconfig of the API server")
    parser.add_argument("--name", default=socket.gethostname().lower(), help="name of the node")
    parser.add_argument("--python", default="", help="Python interpreter of mapped images")
    parser.add_argument("--engine", action="store_true", help="run every image that podman or docker has there")
    parser.add_argument(
        "--pod-pids-limit", type=int, default=default_pids_limit(), help="processes and threads a pod may have"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    limit_repeated_lines()
    settings = NodeSettings(
        root=arguments.root.resolve(),
        name=arguments.name,
        python=arguments.python,
        engine=arguments.engine,
        pod_pids_limit=arguments.pod_pids_limit,
    )
    asyncio.run(_run(settings, arguments.kubeconfig))


async def _run(settings: NodeSettings, config: Path | None) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with open_client(kubeconfig.load(config), "torchyard-node") as client:
        with contextlib.suppress(asyncio.CancelledError):
            await NodeAgent(client, settings).run()


if __name__ == "__main__":
    main()
