"""The labels by which a node says what it gives to pods."""

from __future__ import annotations

RUNTIME, NETWORK, OUTBOUND = "torchyard.dev/runtime", "torchyard.dev/network", "torchyard.dev/outbound"
USER, ROOT, ORDINARY = "torchyard.dev/user", "root", "ordinary"
SECCOMP, PIDS_LIMIT, IDS = "torchyard.dev/seccomp", "torchyard.dev/pids-limit", "torchyard.dev/ids"
