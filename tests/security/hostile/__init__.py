"""A hostile program that runs in a pod: every case tries one thing that a container must not do, and prints a verdict.

It imports only the standard library. The tests mount it into pods of the plane and of a real node, and compare what
both printed. A case that succeeds leaves the machine as it was: it writes back the value that it read, uses arguments
that change nothing, or only opens.

Reading order: `registry` (verdicts, how a case is declared and run), `kernel` (system calls by name), then the cases by
topic: `proc`, `sysfs`, `cgroup`, `device`, `mount`, `namespace`, `capability`, `ipc`, `process`, `syscalls`, `network`,
`inheritance`, `machine`; `__main__` runs all. `victim` is the program of another pod.
"""
