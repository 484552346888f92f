"""`yard doctor`: what this machine offers to pods, or what a cluster lacks for PyTorchJobs, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli.options import State, say
from torchyard.cli.output import Output, OutputOption, Quiet, for_programs, show_records, show_result
from torchyard.cli.target import Context, Kubeconfig, run_with_client

if TYPE_CHECKING:
    from torchyard.kube.client import Client
    from torchyard.yard.bug_report import Finding


def doctor(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what a bug report needs to a .tar.gz, without secrets."),
    ] = None,
    state: State = None,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Report what works on this machine, or on a cluster with --context, what does not, and why.

    Examples: yard doctor; yard doctor --bundle report.tar.gz
    """
    if bundle is not None and (kubeconfig is not None or context):
        _report_bundle(bundle, _cluster_bundle(kubeconfig, context, bundle), output, quiet=quiet)
        return
    if bundle is not None:
        from torchyard.yard.bug_report import write_bundle
        from torchyard.yard.settings import PlaneSettings, default_state

        names = write_bundle(PlaneSettings(state=(state or default_state()).absolute()), bundle)
        _report_bundle(bundle, names, output, quiet=quiet)
        return
    if kubeconfig is not None or context:
        findings, _ = _diagnose(kubeconfig, context)
    else:
        from torchyard.yard import machine

        findings = machine.diagnose_machine()
    chosen = Output.name if quiet else output
    if for_programs(chosen):
        records = [{"name": subject, "works": works, "detail": detail} for subject, works, detail in findings]
        show_records(records, chosen, columns={}, empty="")
        return
    for subject, works, detail in findings:
        say(f"{'✓' if works else '✗'} {subject + ':':<24} {detail}")


def _diagnose(kubeconfig: Path | None, context: str) -> tuple[list[Finding], dict[str, object]]:
    """What a cluster lacks, and its version."""
    from torchyard.kube.kubeconfig import load
    from torchyard.operator import diagnosis

    connection = load(kubeconfig, context=context)

    async def work(client: Client) -> tuple[list[Finding], dict[str, object]]:
        findings = await diagnosis.diagnose_cluster(client, connection.namespace)
        return findings, dict(await client.raw("GET", "/version"))

    return run_with_client(connection, work)


def _cluster_bundle(kubeconfig: Path | None, context: str, bundle: Path) -> list[str]:
    from torchyard.yard.bug_report import write_cluster_bundle

    findings, server = _diagnose(kubeconfig, context)
    return write_cluster_bundle(findings, server, bundle)


def _report_bundle(bundle: Path, names: list[str], output: Output, *, quiet: bool) -> None:
    text = f"wrote {bundle}: {', '.join(names)}; look at it before you send it"
    show_result({"name": str(bundle), "files": names}, output, text, quiet=quiet)
