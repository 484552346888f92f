"""`torchyard-kind`: the commands of kind, with a plane for every cluster instead of a container.

Test suites and scripts that call the program `kind` run without Docker if they find this program under that name.
What a plane cannot do is refused by name; the version of Kubernetes is always that of the plane.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from torchyard import __version__
from torchyard.api.errors import YardError
from torchyard.api.gvr import NODES
from torchyard.api.times import parse_duration
from torchyard.apiserver.access.certificate_dir import CertificateDir
from torchyard.apiserver.access.certificates import ensure_client
from torchyard.apiserver.handlers.non_resource import VERSION
from torchyard.core.node.health import ready_status
from torchyard.files import remove_tree
from torchyard.kube import kubeconfig_entry
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import Config, load, parse_file
from torchyard.testing import kind_config
from torchyard.yard import process
from torchyard.yard.lock import running
from torchyard.yard.settings import PlaneSettings, default_state

_OPTIONS: dict[str, Any] = {"context_settings": {"help_option_names": ["-h", "--help"]}, "rich_markup_mode": None}
app = typer.Typer(
    help="The commands of kind, with a plane for every cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    **_OPTIONS,
)
_create = typer.Typer(help="Create a cluster.", no_args_is_help=True)
_delete = typer.Typer(help="Delete clusters.", no_args_is_help=True)
_export = typer.Typer(help="Export a kubeconfig or logs.", no_args_is_help=True)
_get = typer.Typer(help="List clusters and nodes, or print a kubeconfig.", no_args_is_help=True)
_load = typer.Typer(help="Load images into a cluster.", no_args_is_help=True)
for _name, _group in {"create": _create, "delete": _delete, "export": _export, "get": _get, "load": _load}.items():
    app.add_typer(_group, name=_name)

Name = Annotated[str, typer.Option("--name", "-n", envvar="KIND_CLUSTER_NAME", help="Name of the cluster.")]
Kubeconfig = Annotated[
    Path | None, typer.Option(help="File of the context. Default: $KUBECONFIG, else ~/.kube/config.")
]
_POLL_SECONDS = 0.05
_ADMIN = "kubernetes-admin"
_PLANE_VERSION = "{major}.{minor}".format(**VERSION)


@_create.command()
def cluster(
    name: Annotated[
        str, typer.Option("--name", "-n", envvar="KIND_CLUSTER_NAME", help="Default: of --config, else kind.")
    ] = "",
    config: Annotated[str, typer.Option(help="Configuration of kind; - is standard input.")] = "",
    image: Annotated[str, typer.Option(help="Node image; a plane has no image, and its own version.")] = "",
    kubeconfig: Kubeconfig = None,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait for the node to be ready.")] = "0s",
    retain: Annotated[bool, typer.Option("--retain", help="Keep the files of a plane that does not start.")] = False,
) -> None:
    """Start a plane and make its context current.

    Example: torchyard-kind create cluster --name tests --kubeconfig tests.yaml
    """
    wanted = _read_config(config) if config else kind_config.KindConfig()
    patience = parse_duration(wait).total_seconds()
    name = name or wanted.name or "kind"
    settings = _settings(name)
    if running(settings.lock) is not None:
        raise YardError(
            f'failed to create cluster: node(s) already exist for a cluster with the name "{name}"',
            code="AlreadyExists",
        )
    if image and f"v{_PLANE_VERSION}." not in image:
        _say(f"The plane is Kubernetes {_PLANE_VERSION}, not {image}")
    _say(f'Creating cluster "{name}" ...')
    _remove(settings)  # what a plane has left that was killed, or ended with the machine
    started = subprocess.run(_start_command(settings, wanted, name), capture_output=True, text=True, check=False)
    if started.returncode != 0:
        if not retain:
            _remove(settings)
        message, _, hint = started.stderr.strip().partition("\n")
        raise YardError(f"failed to create cluster: {message.removeprefix('error: ')}", hint=hint, code="StartFailed")
    if not asyncio.run(_becomes_ready(settings, f"{name}-control-plane", patience)):
        _say(f" • WARNING: Timed out waiting for Ready after {wait}")
    _merge(settings, name, kubeconfig)


async def _becomes_ready(settings: PlaneSettings, node: str, seconds: float) -> bool:
    """Whether the node is ready in time; True without a time, as the command then promises nothing."""
    if not seconds:
        return True
    client = Client(HttpTransport(load(settings.kubeconfig), user_agent="torchyard-kind"), manager="torchyard-kind")
    deadline = time.monotonic() + seconds
    try:
        while ready_status(await client.get(NODES, node)) != "True":
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        await client.close()
    return True


def _start_command(settings: PlaneSettings, wanted: kind_config.KindConfig, name: str) -> list[str]:
    where = ["--state", str(settings.state), "--host", wanted.host, "--port", str(wanted.port)]
    return [
        *(sys.executable, "-m", "torchyard.cli", "up", "--detach", "--quiet"),
        *where,
        *("--node-name", f"{name}-control-plane"),
    ]


def _read_config(source: str) -> kind_config.KindConfig:
    if source == "-":
        return kind_config.read(Path("standard input"), sys.stdin.read())
    try:
        return kind_config.read(Path(source), Path(source).read_text())
    except OSError as error:
        raise YardError(f"cannot read {source}: {error.strerror}", code="NotFound") from error


@_delete.command("cluster")
def delete_cluster(name: Name = "kind", kubeconfig: Kubeconfig = None) -> None:
    """Stop a plane, and remove its files and its context.

    Example: torchyard-kind delete cluster --name tests
    """
    _say(f'Deleting cluster "{name}" ...')
    settings = _settings(name)
    if settings.state.exists():
        process.stop(settings.state)
        _remove(settings)
        _say(f'Deleted nodes: ["{name}-control-plane"]')
    kubeconfig_entry.remove(f"kind-{name}", environ=_environ(kubeconfig))


@_delete.command("clusters")
def delete_clusters(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
    every: Annotated[bool, typer.Option("--all", "-A", help="Delete all clusters.")] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Delete several clusters.

    Example: torchyard-kind delete clusters --all
    """
    chosen = _all_directories() if every else names
    if not chosen and not every:
        raise YardError("no cluster is named", hint="give names, or --all", code="BadOption")
    for name in chosen or ():
        delete_cluster(name, kubeconfig)


@_get.command("clusters")
def get_clusters() -> None:
    """Print the names of the clusters that run."""
    names = _clusters()
    if not names:
        _say("No kind clusters found.")
    for name in names:
        typer.echo(name)


@_get.command("nodes")
def get_nodes(
    name: Name = "kind", every: Annotated[bool, typer.Option("--all-clusters", "-A", help="Of all clusters.")] = False
) -> None:
    """Print the node of a cluster."""
    names = [each for each in _clusters() if every or each == name]
    if not names:
        _say(f'No kind nodes found for cluster "{name}".')
    for each in names:
        typer.echo(f"{each}-control-plane")


@_get.command("kubeconfig")
def get_kubeconfig(name: Name = "kind") -> None:
    """Print the kubeconfig of a cluster."""
    import yaml

    typer.echo(yaml.safe_dump(_config(_running(name), name), sort_keys=False), nl=False)


@_export.command("kubeconfig")
def export_kubeconfig(name: Name = "kind", kubeconfig: Kubeconfig = None) -> None:
    """Add the context of a cluster to a kubeconfig, and make it current."""
    _merge(_running(name), name, kubeconfig)


@_export.command("logs")
def export_logs(directory: Annotated[Path | None, typer.Argument(metavar="[DIR]")] = None, name: Name = "kind") -> None:
    """Copy the log of a plane into a directory."""
    settings = _running(name)
    target = directory or Path(tempfile.mkdtemp(prefix="kind-logs-"))
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(settings.log, target / f"{name}-control-plane.log")
    _say(f'Exporting logs for cluster "{name}" to:')
    typer.echo(str(target))


@_load.command("image-archive")
def load_archive(archives: Annotated[list[Path], typer.Argument(metavar="FILE...")], name: Name = "kind") -> None:
    """Load images from archives.

    Example: torchyard-kind load image-archive app.tar --name tests
    """
    settings = _running(name)
    for archive in archives:
        command = [sys.executable, "-m", "torchyard.cli", "image", "load", str(archive), "--state", str(settings.state)]
        loaded = subprocess.run(command, capture_output=True, text=True, check=False)
        if loaded.returncode != 0:
            raise YardError(loaded.stderr.strip().removeprefix("error: "), code="LoadFailed")
        _say(loaded.stdout.strip())


@_load.command("docker-image")
def load_images(images: Annotated[list[str], typer.Argument(metavar="IMAGE...")], name: Name = "kind") -> None:
    """Load images that docker or podman has.

    Example: torchyard-kind load docker-image app:1 --name tests
    """
    settings = _running(name)
    engine = next((path for path in map(shutil.which, ("docker", "podman")) if path), None)
    if engine is None:
        raise YardError(
            "neither docker nor podman is installed here",
            hint=f"build the image with `yard image build --state {settings.state}`",
            code="NotFound",
        )
    for image in images:
        with tempfile.TemporaryDirectory(prefix="kind-image-") as directory:
            archive = Path(directory) / "image.tar"
            saved = subprocess.run(
                [engine, "save", "-o", str(archive), image], capture_output=True, text=True, check=False
            )
            if saved.returncode != 0:
                raise YardError(f"{Path(engine).name} cannot save {image}: {saved.stderr.strip()}", code="LoadFailed")
            load_archive([archive], name)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"kind of torchyard {__version__}, Kubernetes {_PLANE_VERSION}")


def _directory() -> Path:
    return default_state().with_name("torchyard-kind")


def _settings(name: str) -> PlaneSettings:
    if not name.replace("-", "").replace(".", "").isalnum() or name.lower() != name or name.startswith((".", "-")):
        raise YardError(f"'{name}' is not a valid cluster name", hint="use a-z, 0-9, - and .", code="BadName")
    return PlaneSettings(state=(_directory() / name).absolute())


def _all_directories() -> list[str]:
    directory = _directory()
    return sorted(entry.name for entry in directory.iterdir()) if directory.exists() else []


def _clusters() -> list[str]:
    return [name for name in _all_directories() if running(_settings(name).lock) is not None]


def _running(name: str) -> PlaneSettings:
    settings = _settings(name)
    if running(settings.lock) is None:
        raise YardError(
            f"could not locate any control plane nodes for cluster named '{name}'. "
            "Use the --name option to select a different cluster",
            code="NotFound",
        )
    return settings


def _remove(settings: PlaneSettings) -> None:
    """Stop the pods of a plane that does not run, and remove its files."""
    if settings.state.exists():
        process.stop_pods(settings.state)
        remove_tree(settings.state)


def _config(settings: PlaneSettings, name: str) -> Config:
    """The kubeconfig of a plane as kind writes one: its names, and a client certificate of the administrator."""
    credentials = CertificateDir(settings.credentials)
    pair = ensure_client(credentials, _ADMIN, user=_ADMIN, groups=("system:masters",))
    config = parse_file(settings.kubeconfig, required=True)
    own = kubeconfig_entry.build_config(
        f"kind-{name}",
        server=config["clusters"][0]["cluster"]["server"],
        authority=credentials.authority.read_bytes(),
        certificate=pair.certificate,
        key=pair.key,
    )
    del own["contexts"][0]["context"]["namespace"]  # as kind: kubectl's default
    return own


def _merge(settings: PlaneSettings, name: str, kubeconfig: Path | None) -> None:
    own = _config(settings, name)
    kubeconfig_entry.merge(own, environ=_environ(kubeconfig), replace=True, switch=True)
    _say(f'Set kubectl context to "kind-{name}"')


def _environ(kubeconfig: Path | None) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(kubeconfig.absolute())} if kubeconfig else dict(os.environ)


def _say(text: str) -> None:
    """kind reports on standard error, and prints only what programs read on standard output."""
    typer.echo(text, err=True)


def main() -> None:
    try:
        app()
    except YardError as error:
        _say(f"ERROR: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
