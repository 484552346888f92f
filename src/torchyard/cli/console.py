"""`yard console`: the web console."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.api.samples import OPERATOR_NAMESPACE
from torchyard.cli.options import say
from torchyard.cli.target import Cluster, with_cluster

if TYPE_CHECKING:
    from torchyard.console.forwarding import Owner, ReadHistory
    from torchyard.console.sessions import ConsoleSessions
    from torchyard.kube.client import Client

_DEFAULT_PORT = 8686


@with_cluster
def console(
    cluster: Cluster,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link and open no browser.")] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help=f"Port on 127.0.0.1; 0 takes a free one. Default: {_DEFAULT_PORT} if it is free."
        ),
    ] = None,
    operator_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the cluster's operator, which keeps curves.")
    ] = OPERATOR_NAMESPACE,
    direct: Annotated[
        bool,
        typer.Option("--direct", help="Use the console that the plane itself serves, with the plane's certificate."),
    ] = False,
) -> None:
    """Show jobs, logs, curves, queues and nodes in a browser, until Ctrl-C.

    A local process serves the pages and forwards to the cluster with the rights of your kubeconfig.
    The link signs in once and is valid for two minutes.

    Examples: yard console; yard console --context prod --no-browser --port 0
    """
    from torchyard.console.pages import ConsolePages, PagesMissing

    if direct:
        _open(asyncio.run(_direct_link(cluster)), browser=not no_browser)
        return
    if not ConsolePages().are_built:
        raise PagesMissing
    with contextlib.suppress(KeyboardInterrupt):
        serving = _serve(
            cluster,
            _DEFAULT_PORT if port is None else port,
            operator_namespace,
            may_choose=port is None,
            browser=not no_browser,
        )
        asyncio.run(serving)


async def _serve(cluster: Cluster, port: int, operator_namespace: str, *, may_choose: bool, browser: bool) -> None:
    from torchyard.console.app import ConsoleApp
    from torchyard.console.forwarding import OWNER, ForwardingBackend
    from torchyard.console.loopback import LoopbackServer
    from torchyard.console.origin import LOOPBACK_HOSTS, OWN_HEADER
    from torchyard.console.sessions import ConsoleSessions
    from torchyard.kube.connect import open_transport

    async with open_transport(cluster.connection, "yard-console", headers={OWN_HEADER: "1"}) as transport:
        backend = ForwardingBackend(
            transport,
            context=cluster.connection.context,
            namespace=cluster.namespace,
            read_history=history_reader(cluster),
            operator_namespace=operator_namespace,
        )
        identity = await backend.identity(OWNER)  # fails here, and not in the browser, if the cluster does not answer
        sessions: ConsoleSessions[Owner] = ConsoleSessions("torchyard-console")
        app: ConsoleApp[Owner, Owner] = ConsoleApp(backend, sessions, hosts=LOOPBACK_HOSTS)
        async with LoopbackServer(app, port, may_choose=may_choose) as server, _running(backend.run()):
            say(f"console of {identity['context']} for {identity['user']}: {server.url} (Ctrl-C ends it)")
            _open(link(server.url, sessions.issue_code(OWNER)), browser=browser)
            if sys.stdin is not None and sys.stdin.isatty():
                await _print_links(server.url, sessions)
            else:
                await asyncio.Event().wait()


def history_reader(cluster: Cluster) -> ReadHistory:
    """Reads the jobs that have ended from where `yard history` does."""

    async def read_history(client: Client) -> list[Mapping[str, Any]]:
        from torchyard.jobs.past_jobs import list_runs

        return list(await list_runs(client, cluster, ""))

    return read_history


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something in the background; its failure is logged and ends nothing."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        typer.echo(f"warning: the usage of pods is no longer read: {task.exception()}", err=True)


async def _print_links(url: str, sessions: ConsoleSessions[Owner]) -> None:
    """Print another link whenever the user presses Enter: for another browser, or after a sign-out."""
    from torchyard.console.forwarding import OWNER

    say("press Enter for another link")
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), lambda: lines.put_nowait(sys.stdin.readline()))
    try:
        while await lines.get():
            say(link(url, sessions.issue_code(OWNER)))
    finally:
        loop.remove_reader(sys.stdin.fileno())
    await asyncio.Event().wait()  # stdin is closed


async def _direct_link(cluster: Cluster) -> str:
    """A link to the console that the plane serves, with a one-time code that it issues for our credentials."""
    from torchyard.api.errors import StatusError, YardError
    from torchyard.console.origin import OWN_HEADER
    from torchyard.kube.client import Client
    from torchyard.kube.connect import open_transport

    async with open_transport(cluster.connection, "yard-console", headers={OWN_HEADER: "1"}) as transport:
        try:
            document = await Client(transport, manager="yard-console").raw("POST", "/console/codes", {})
        except StatusError as error:
            if error.status not in (403, 404, 405):
                raise
            raise YardError(
                f"{cluster.connection.server} does not serve the console: {error.message}",
                hint="only a plane does; use `yard console` without --direct",
                code="NotFound",
            ) from error
    return link(f"{cluster.connection.server.rstrip('/')}/console/", document["code"])


def link(url: str, code: str) -> str:
    """The code is in the fragment, which browsers do not send: it appears in no log and in no Referer header."""
    return f"{url}#login={code}"


def _open(target: str, *, browser: bool) -> None:
    say(target)
    if browser:
        import webbrowser

        # The arguments of a browser's process are visible to every user of this machine, so it gets a file instead.
        if not webbrowser.open(_redirect_file(target).as_uri()):
            say("no browser was found: open the link above")


def _redirect_file(target: str) -> Path:
    """A page that only this user can read and that leads to the link, whose code is used then.

    It stays in the temporary directory: when the browser has read it is unknown.
    """
    descriptor, name = tempfile.mkstemp(prefix="yard-console-", suffix=".html")  # mode 0600
    with os.fdopen(descriptor, "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(target)}">')
        file.write(f'<a href="{escape(target)}">Open the console</a>\n')
    return Path(name)
