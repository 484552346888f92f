"""How a container runs on this machine. There are three rungs: a container engine (for images that only it has, or on
request), the sandbox (namespaces), a plain process. Each ends in the same thing, a config that the shim starts from.

Reading order: `machine_features` (which rungs this machine has, and why not the others), `rootfs_steps` and
`root_templates` (the root of a container in the sandbox), `id_ranges` and `idmapped_mounts` (pods with ids of their
own), `seccomp` (the filter of its system calls).
"""
