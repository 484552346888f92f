"""The processes below the agent: one shim per pod, one zygote and one namespace holder per node.

A shim outlives the node agent and the API server. It owns the containers' processes and log pipes, records how each
container ended, and serves exec, attach and port connections on a unix socket. It decides nothing: the agent says what
to start. All modules but `client` import only the standard library, and little of it.

Reading order:

- `record_types`: every file and message of the node, as types (never imported at run time)
- `records`: the JSON files of a pod's directory
- `wire`, `event_loop`, `socket_server`: packets, epoll, requests by name
- `namespace_holder`: holds the node's user and network namespaces
- `sealed_program`, `zygote`, `__main__`: run from a copy of the interpreter that no container can change; fork shims
- `shim_pool`: shims that enter their namespaces before they have a pod
- `pod_namespaces`, `shifted_ids`, `pids`: the namespaces of one pod, its ids, the limit on its processes
- `shim_server`: the requests about one pod
- `container`, `output`, `memory`: one attempt of a container, its log, its memory limit
- `process`, `rootfs`, `tree_copies`, `tar`: between fork and exec
- `linux`, `netlink`, `outbound_nat`: system calls, rtnetlink, iptables
- `namespace_check`: which namespaces this machine allows
- `legacy`: state directories of version 0.1
- `client`: the agent's side, for asyncio
"""
