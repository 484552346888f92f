"""The metrics of supervised parts, in the text format of Prometheus."""

from __future__ import annotations

from torchyard.kube.supervisor import Supervisor


def supervisor_metrics(supervisor: Supervisor) -> bytes:
    lines = [
        "# HELP torchyard_part_failures_total How many times a part of the process failed and was started again.",
        "# TYPE torchyard_part_failures_total counter",
    ]
    lines += [
        f'torchyard_part_failures_total{{part="{part}"}} {count}' for part, count in sorted(supervisor.failures.items())
    ]
    lines += [
        "# HELP torchyard_parts_down How many parts of the process wait for their restart.",
        "# TYPE torchyard_parts_down gauge",
        f"torchyard_parts_down {len(supervisor.down())}",
        "",
    ]
    return "\n".join(lines).encode()
