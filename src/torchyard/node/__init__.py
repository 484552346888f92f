"""The node agent (the kubelet's role): from Pod objects to processes, logs and exec, and back to their status.

Reading order:

- `agent`, `__main__`: registers the node and runs a worker per pod; the agent in a process of its own
- `pod/`: one pod. Its docstring lists the steps of a container's start
- `shim/`: the processes below the agent. A shim per pod owns its containers
- `runtime/`: what this machine can do, and the root of a container
- `images/`, `volumes/`, `network/`, `resources/`, `devices/`, `logs/`: what pods use
- `context`, `settings`: what all pods share; what a node is configured with
- `node_object`, `events`: the Node object; events of the node and its pods
- `streams`, `pipes`: logs, exec, attach and port-forward for the API server
- `threads`: runs what may block
- `shutdown`: ends everything that a node runs
"""
