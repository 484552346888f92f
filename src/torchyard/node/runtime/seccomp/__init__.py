"""Seccomp filters of containers: from a profile in the OCI format to a BPF program on disk, which the shim installs.

Reading order: `default_profile` (RuntimeDefault), `profile` (the OCI format, and files of Localhost profiles),
`compiler` (profile to program), `syscall_table` (names to numbers), `filters` (the programs on disk, one per profile
and set of capabilities).
"""
