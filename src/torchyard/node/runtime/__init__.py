"""How a container becomes a process: the rungs this machine offers, and the launch each of them needs.

From the top: a container engine (only when asked for), the sandbox (namespaces), a plain process. Every rung ends in
the same thing, a launch that the shim carries out.
"""
