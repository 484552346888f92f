"""Which node a pod or a gang of pods goes to; and if none, why and what would help. Pure.

- `node_info`: nodes with their pods and resources, and the requests of a pod.
- `filters`: why a pod does not fit on a node.
- `schedule`: the choice of a node for a pod, or of nodes for a gang.
- `hints`: what would let a pending pod start.
- `cache`: the nodes with the pods on them, kept current change by change.
- `pod_class`: waiting pods that share one answer.
- `waiting`: classes that wait, by what could help them.
- `queue`: the pods that wait, and what is tried again after which change.
"""
