"""`yard up`, `down`, `status`, `kubeconfig`: the plane of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import State, say
from torchyard.yard.settings import DEFAULT_PORT, Settings, default_node_name, default_state


def up(
    state: State = None,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0: a free one.")] = (
        DEFAULT_PORT
    ),
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0: all of this machine.")
    ] = "127.0.0.1",
    detach: Annotated[bool, typer.Option("--detach", help="Go on in the background once the plane answers.")] = False,
    token_auth_file: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help='Static tokens in kube-apiserver\'s format: token,user,uid,"group1,group2".'),
    ] = None,
    controllers: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Controllers to run, as kube-controller-manager has it: '*', '*,-name', '-*'."
        ),
    ] = "*",
    node: Annotated[bool, typer.Option("--node/--no-node", help="Run pods on this machine.")] = True,
    node_name: Annotated[
        str, typer.Option(metavar="NAME", help="What the node is called; default: the host name.")
    ] = "",
    local_queues: Annotated[
        bool,
        typer.Option(
            "--local-queues/--no-local-queues",
            help="With a node: a ClusterQueue from what the machine has, and queues in every namespace.",
        ),
    ] = True,
    queue_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Kueue's Configuration: its waitForPodsReady is what our queues go by."),
    ] = None,
    assume_gpu_product: Annotated[
        str, typer.Option(metavar="NAME", help="Label the node's GPUs as this product, for manifests that select one.")
    ] = "",
    python: Annotated[
        str, typer.Option(metavar="PATH", help="Interpreter for well-known images; default: the active environment.")
    ] = "",
    engine: Annotated[
        bool,
        typer.Option(
            "--engine", help="Run every image that podman or docker holds in it, not only those unknown here."
        ),
    ] = False,
    keep_pods: Annotated[
        bool, typer.Option("--keep-pods", help="When told to stop, let pods run on; the next `yard up` adopts them.")
    ] = False,
    fsync: Annotated[
        str,
        typer.Option(metavar="MODE", help="normal: writes survive a crash of the plane; full: also a power cut."),
    ] = "normal",
) -> None:
    """Start the plane: an API server for kubectl and the SDKs, and the controllers behind it."""
    from torchyard.yard import process

    settings = Settings(
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
    )
    if detach:
        holder = process.start_detached(settings)
        _welcome(settings, holder.url)
        return
    pods = process.run(settings, lambda url: _welcome(settings, url))
    more = f" and {_count(pods)}" if pods else "; pods run on" if keep_pods else ""
    say(f"stopped the plane{more}")


def _fsync(said: str) -> Literal["normal", "full"]:
    if said == "normal":
        return "normal"
    if said == "full":
        return "full"
    raise YardError(f"--fsync {said!r} is not known", hint="use normal or full")


def _welcome(settings: Settings, url: str) -> None:
    say(f"Torchyard is up at {url}")
    say(f"  export KUBECONFIG={settings.kubeconfig}")
    say("  kubectl get nodes,pods -A")


def down(
    state: State = None,
    keep_pods: Annotated[
        bool, typer.Option("--keep-pods", help="Let pods run on; the next `yard up` adopts them.")
    ] = False,
) -> None:
    """Stop the plane and its pods. What it stored stays."""
    from torchyard.yard import process

    where = (state or default_state()).absolute()
    pid = process.stop(where)
    pods = 0 if keep_pods else process.stop_pods(where)
    if pid:
        say(f"stopped process {pid}" + (f" and {_count(pods)}" if pods else ""))
    else:
        say(f"no plane is running on {where}" + (f"; stopped {_count(pods)} that ran on without one" if pods else ""))


def _count(pods: int) -> str:
    return f"{pods} pod{'s' if pods > 1 else ''}"


def status(state: State = None) -> None:
    """Say whether the plane runs, where it answers and what it holds. Exits 1 if it does not run."""
    from torchyard.yard import process

    where = (state or default_state()).absolute()
    found = process.inspect(where)
    if found is None:
        say(f"not running (state: {where})")
        raise typer.Exit(1)
    for name, value in found.items():
        say(f"{name + ':':<12}{value}")


def kubeconfig(
    state: State = None,
    path: Annotated[bool, typer.Option("--path", help="Print the file's path instead of its contents.")] = False,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add the context `torchyard` to your own kubeconfig and make it current.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --merge: overwrite a context `torchyard` that is not ours.")
    ] = False,
) -> None:
    """Print the kubeconfig of the plane, or its path, or merge it into yours."""
    from torchyard.kube import kubeconfig_entry
    from torchyard.kube.kubeconfig import parse_file

    settings = Settings(state=(state or default_state()).absolute())
    file = settings.kubeconfig
    if not file.exists():
        raise YardError(f"there is no kubeconfig in {settings.state}", hint="start the plane with `yard up` first")
    if path:
        say(str(file))
    elif merge:
        say(f"merged into {kubeconfig_entry.merge(parse_file(file, required=True), replace=replace, switch=True)}")
    else:
        typer.echo(file.read_text(), nl=False)
