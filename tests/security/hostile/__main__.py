"""Run the cases whose names begin with one of the arguments, or all."""

from __future__ import annotations

import sys

# First: it looks at the descriptors that the program started with.
from tests.security.hostile import inheritance  # noqa: F401  # isort: skip
from tests.security.hostile import (  # noqa: F401
    capability,
    cgroup,
    device,
    ipc,
    machine,
    mount,
    namespace,
    network,
    proc,
    process,
    syscalls,
    sysfs,
)
from tests.security.hostile.registry import CASES, run

if __name__ == "__main__":
    prefixes = tuple(sys.argv[1:])
    run(name for name in CASES if not prefixes or name.startswith(prefixes))
