"""`yard doctor`: what this machine offers to pods, or what a cluster lacks for PyTorchJobs, and why."""

from __future__ import annotations

from torchyard.cli.options import say
from torchyard.cli.target import Context, Kubeconfig, run_with_client


def doctor(kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Report what works on this machine, or on a cluster with --context, what does not, and why."""
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
