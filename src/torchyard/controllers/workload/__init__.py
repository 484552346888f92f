"""The controllers of workloads.

Modules in reading order:

- `ownership`: what belongs to a workload: adoption and release.
- `pod_writer`: creates and deletes the pods of a workload.
- `replicaset`: ReplicaSets and ReplicationControllers.
- `deployment`: Deployments.
- `revision_writer`: the ControllerRevisions of the two kinds below.
- `stateful_writer`, `statefulset`: StatefulSets with their claims.
- `daemonset`: DaemonSets.
- `disruption`: PodDisruptionBudgets.
"""
