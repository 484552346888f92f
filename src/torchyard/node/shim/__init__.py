"""The small process that owns one pod's containers, and what talks to it.

A shim outlives the node agent and the API server: it holds the containers' processes and log pipes, writes down how
each container ended, and serves exec, attach and port connections on a unix socket. It decides nothing: the agent tells
it what to start. Only the standard library, and little of it, may be imported here (but for `client`).
"""
