"""`yard up`, `down`, `status`, `kubeconfig`: the plane of this machine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import State, say
from torchyard.cli.output import Output, OutputOption, Quiet, Record, for_programs, show_result, table_lines
from torchyard.yard.settings import DEFAULT_PORT, THRESHOLD_SECONDS, PlaneSettings, default_node_name, default_state

if TYPE_CHECKING:
    from torchyard.yard.status import PlaneStatus


def up(
    state: State = None,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0 chooses a free one.")
    ] = (DEFAULT_PORT),
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 listens on all.")
    ] = "127.0.0.1",
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background; return when the plane is ready.")
    ] = False,
    token_auth_file: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help='Static tokens in kube-apiserver\'s format: token,user,uid,"group1,group2".'),
    ] = None,
    controllers: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Controllers to run, in kube-controller-manager's syntax: '*', '*,-name', '-*'."
        ),
    ] = "*",
    node: Annotated[bool, typer.Option("--node/--no-node", help="Run pods on this machine.")] = True,
    node_name: Annotated[str, typer.Option(metavar="NAME", help="Name of the node. Default: the host name.")] = "",
    local_queues: Annotated[
        bool,
        typer.Option(
            "--local-queues/--no-local-queues",
            help="With a node, create a ClusterQueue of its resources and a LocalQueue in every namespace.",
        ),
    ] = True,
    queue_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Kueue's Configuration file: its waitForPodsReady and fair sharing apply to the queues.",
        ),
    ] = None,
    assume_gpu_product: Annotated[
        str, typer.Option(metavar="NAME", help="Label the node with this GPU product, for manifests that select one.")
    ] = "",
    python: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Interpreter for well-known images; kept for later starts. auto: the active environment, the default.",
        ),
    ] = "",
    engine: Annotated[
        bool,
        typer.Option(
            "--engine",
            help="Run every image that podman or docker has in that engine, not only images unknown to the node.",
        ),
    ] = False,
    node_port_addresses: Annotated[
        str,
        typer.Option(
            metavar="RANGES",
            help="Open node ports and host ports on these addresses of the machine too, not on loopback alone: "
            "ranges such as 192.168.0.0/16, or primary, the node's address.",
        ),
    ] = "",
    route_pods: Annotated[
        bool,
        typer.Option(
            "--route-pods",
            help="Let programs of this machine, and pods with hostNetwork, reach the addresses of pods and Services; "
            "needs root. Other machines do not reach them.",
        ),
    ] = False,
    pod_pids_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=-1,
            help="Processes and threads a pod may have; -1: no limit. Default: 1024, and 128 for each CPU.",
        ),
    ] = None,
    keep_pods: Annotated[
        bool,
        typer.Option(
            "--keep-pods", help="Keep pods running on Ctrl-C, SIGTERM and SIGHUP; the next `yard up` adopts them."
        ),
    ] = False,
    fsync: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="What acknowledged writes survive. normal: a crash of the plane; full: also a power failure.",
        ),
    ] = "normal",
    watchdog_threshold: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Record what blocks the plane for longer, in its log and its metrics; 0 records nothing.",
        ),
    ] = THRESHOLD_SECONDS,
    history_days: Annotated[
        int, typer.Option(metavar="N", min=0, help="Keep ended jobs and their logs for N days; 0 keeps none.")
    ] = 30,
    max_connections: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Connections to the API server; 0: as many as the limit of open files allows."
        ),
    ] = 0,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Start the plane: an API server for kubectl and the SDKs, its controllers, and a node.

    Examples: yard up; yard up --detach --port 0; yard up --python .venv/bin/python
    """
    from torchyard.yard import process
    from torchyard.yard.lock import PlaneProcess

    if node_port_addresses:
        from torchyard.node.network.addresses import listening_addresses

        listening_addresses(node_port_addresses, host="127.0.0.1")  # a wrong range is refused before anything starts
    if route_pods:
        _check_route_pods(node=node)
    settings = PlaneSettings(
        state=(state or default_state()).absolute(),
        host=host,
        port=port,
        fsync=_fsync(fsync),
        token_auth_file=token_auth_file.absolute() if token_auth_file else None,
        controllers=controllers,
        node=node,
        node_name=node_name or default_node_name(),
        local_queues=local_queues,
        queue_config=queue_config.absolute() if queue_config else None,
        gpu_product=assume_gpu_product,
        python=python,
        keep_pods=keep_pods,
        engine=engine,
        node_port_addresses=node_port_addresses,
        route_pods=route_pods,
        pod_pids_limit=pod_pids_limit,
        watchdog_threshold=watchdog_threshold,
        max_connections=max_connections,
        history_days=history_days,
    )
    started = process.start_detached(settings) if detach else None
    if isinstance(started, PlaneProcess):
        _print_address(settings, started.url, output, quiet=quiet)
        return

    def ready(url: str) -> None:
        _print_address(settings, url, output, quiet=quiet)
        if started is not None:
            started(url)

    pods = process.run(settings, ready)
    suffix = f" and {_count(pods)}" if pods else "; pods keep running" if keep_pods else ""
    if not quiet and not for_programs(output):
        say(f"stopped the plane{suffix}")


def _check_route_pods(*, node: bool) -> None:
    from torchyard.api.cluster import node_messages as messages

    reason = "" if node else messages.ROUTES_NEED_NODE
    if os.geteuid():
        reason = messages.ROUTES_NEED_ROOT
    if reason:
        raise YardError(messages.pods_not_routed(reason), hint=messages.PODS_NOT_ROUTED_HINT, code="BadOption")


def _fsync(mode: str) -> Literal["normal", "full"]:
    if mode == "normal":
        return "normal"
    if mode == "full":
        return "full"
    raise YardError(f"--fsync {mode!r} is not a valid mode", hint="use normal or full", code="BadOption")


def _print_address(settings: PlaneSettings, url: str, output: Output, *, quiet: bool) -> None:
    lines = f"Torchyard is up at {url}", f"  export KUBECONFIG={settings.kubeconfig}", "  kubectl get nodes,pods -A"
    record = {
        "name": settings.name,
        "address": url,
        "kubeconfig": str(settings.kubeconfig),
        "state": str(settings.state),
    }
    show_result(record, output, "\n".join(lines), quiet=quiet)
    sys.stdout.flush()


def down(
    state: State = None,
    keep_pods: Annotated[
        bool, typer.Option("--keep-pods", help="Keep pods running; the next `yard up` adopts them.")
    ] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Stop the plane and its pods. The stored objects stay.

    Example: yard down
    """
    from torchyard.yard import process

    directory = (state or default_state()).absolute()
    pid = process.stop(directory)
    pods = 0 if keep_pods else process.stop_pods(directory)
    if pid:
        text = f"stopped process {pid}" + (f" and {_count(pods)}" if pods else "")
    else:
        suffix = f"; stopped {_count(pods)} that had kept running" if pods else ""
        text = f"no plane is running on {directory}{suffix}"
    settings = PlaneSettings(state=directory)
    record = {"name": settings.name, "state": str(directory), "stopped": bool(pid), "process": pid, "pods": pods}
    show_result(record, output, text, quiet=quiet)


def _count(pods: int) -> str:
    return f"{pods} pod{'s' if pods > 1 else ''}"


def status(
    state: State = None,
    all_parts: Annotated[
        bool, typer.Option("--all", help="Show all parts, not only those that have failed. As -o wide.")
    ] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Show whether the plane is running, its address, its node and its parts. Exits with 1 if it is not running.

    Examples: yard status; yard status --all; yard status -o json
    """
    from torchyard.yard.status import plane_status

    directory = (state or default_state()).absolute()
    plane = plane_status(directory)
    chosen = Output.name if quiet else output
    record = {"running": plane is not None, **(plane.fields() if plane else {"state": str(directory)})}
    if chosen is Output.name:
        if plane is not None:
            say(PlaneSettings(state=directory).name)
    elif chosen is Output.json:
        say(json.dumps(record))
    elif chosen is Output.yaml:
        import yaml

        say(yaml.safe_dump(record, sort_keys=False).rstrip())
    elif plane is None:
        say(f"not running (state: {directory})")
    else:
        _print_status(plane, all_parts=all_parts or chosen is Output.wide)
    if plane is None:
        raise typer.Exit(1)


def _print_status(plane: PlaneStatus, *, all_parts: bool) -> None:
    details = {
        "state": plane.state,
        "process": str(plane.process),
        "address": plane.address or "starting",
        "since": plane.since or "starting",
        "kubeconfig": plane.kubeconfig,
        "store": f"{plane.store_bytes / 1e6:.1f} MB",
        **({"node": plane.node} if plane.node else {}),
        "parts": _summary(plane),
    }
    for name, value in details.items():
        say(f"{name + ':':<12}{value}")
    shown = [part for part in plane.parts if all_parts or part.failures or not part.is_running]
    rows = [[part.part, part.state, str(part.failures), part.since, part.lastError] for part in shown]
    if rows:
        say("")
        for line in table_lines([["PART", "STATE", "FAILURES", "SINCE", "LAST ERROR"], *rows]):
            say(line)


def _summary(plane: PlaneStatus) -> str:
    if plane.error:
        return f"unknown: {plane.error}"
    restarting = sum(not part.is_running for part in plane.parts)
    failed = sum(part.is_running and part.failures > 0 for part in plane.parts)
    text = f"{len(plane.parts) - restarting} running" + (f", {failed} of them after a failure" if failed else "")
    return text + (f", {restarting} restarting" if restarting else "")


def kubeconfig(
    state: State = None,
    path: Annotated[bool, typer.Option("--path", help="Print the path of the file instead of its contents.")] = False,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add the context `torchyard` to your kubeconfig and make it current.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --merge, overwrite a context `torchyard` of another origin.")
    ] = False,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Print the kubeconfig of the plane or its path, or merge it into your kubeconfig.

    Examples: yard kubeconfig --merge; export KUBECONFIG=$(yard kubeconfig --path)
    """
    from torchyard.kube import kubeconfig_entry
    from torchyard.kube.kubeconfig import parse_file

    settings = PlaneSettings(state=(state or default_state()).absolute())
    file = settings.kubeconfig
    if not file.exists():
        raise YardError(
            f"there is no kubeconfig in {settings.state}", hint="start the plane with `yard up` first", code="NotFound"
        )
    record: Record = {"name": settings.name, "path": str(file)}
    if path:
        show_result(record, output, str(file), quiet=quiet)
    elif merge:
        merged = kubeconfig_entry.merge(parse_file(file, required=True), replace=replace, switch=True)
        show_result({**record, "mergedInto": str(merged)}, output, f"merged into {merged}", quiet=quiet)
    elif quiet or output is Output.name:
        say(settings.name)
    elif output is Output.json:
        say(json.dumps(parse_file(file, required=True), indent=2))
    else:
        typer.echo(file.read_text(), nl=False)
