"""`yard doctor`: what this machine offers to pods, or what a cluster lacks for PyTorchJobs, and why."""

from __future__ import annotations

from torchyard.cli.options import say
from torchyard.cli.target import Context, Kubeconfig, ask


def doctor(kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Say in plain words what works on this machine, or on the cluster that is named, what does not, and why."""
    if kubeconfig is not None or context:
        from torchyard.kube.kubeconfig import load
        from torchyard.operator.report import findings as of_cluster

        connection = load(kubeconfig, context=context)
        found = ask(connection, lambda client: of_cluster(client, connection.namespace))
    else:
        from torchyard.yard.machine import findings

        found = findings()
    for what, works, words in found:
        say(f"{'✓' if works else '✗'} {what + ':':<24} {words}")
