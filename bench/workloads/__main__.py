"""`python -m bench.workloads`: what PyTorchJobs cost here.

`jobs`: many small jobs whose pods end at once, on a fake node: the controllers and the API server alone.
`large`: one job with many replicas, likewise.
`demo`: the demo's training on the plane and under bare torchrun; needs a Python with torch (`--python`).
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from bench.workloads import demo, jobs


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.workloads", description=__doc__)
    parser.add_argument("what", nargs="*", help="jobs, large, demo", default=["jobs", "large", "demo"])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=3, help="of each job, beside its master")
    parser.add_argument("--replicas", type=int, default=1000, help="of the large job")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--limit", type=int, default=0, help="images of the demo; 0: all")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.what:
        if name == "demo":
            print(demo.measure(arguments.python, arguments.limit, arguments.rounds), flush=True)
        else:
            count, workers = (arguments.jobs, arguments.workers) if name == "jobs" else (1, arguments.replicas - 1)
            print(asyncio.run(jobs.measure(count, workers)), flush=True)


if __name__ == "__main__":
    main()
