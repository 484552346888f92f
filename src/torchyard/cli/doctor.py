"""`yard doctor`: what this machine offers to pods, or what a cluster lacks for PyTorchJobs, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchyard.cli.options import State, say
from torchyard.cli.target import Context, Kubeconfig, run_with_client


def doctor(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what a bug report needs to a .tar.gz, without secrets."),
    ] = None,
    state: State = None,
) -> None:
    """Report what works on this machine, or on a cluster with --context, what does not, and why.

    Examples: yard doctor; yard doctor --bundle report.tar.gz
    """
    if bundle is not None:
        from torchyard.yard.bug_report import write_bundle
        from torchyard.yard.settings import PlaneSettings, default_state

        names = write_bundle(PlaneSettings(state=(state or default_state()).absolute()), bundle)
        say(f"wrote {bundle}: {', '.join(names)}; look at it before you send it")
        return
    if kubeconfig is not None or context:
        from torchyard.kube.kubeconfig import load
        from torchyard.operator import diagnosis

        connection = load(kubeconfig, context=context)
        findings = run_with_client(connection, lambda client: diagnosis.diagnose_cluster(client, connection.namespace))
    else:
        from torchyard.yard import machine

        findings = machine.diagnose_machine()
    for subject, works, detail in findings:
        say(f"{'✓' if works else '✗'} {subject + ':':<24} {detail}")
