"""What the controllers of workloads decide. Pure: objects and the time in, writes, status and events out.

Modules in reading order:

- `pods`: what a controller wants to know about a pod, and a new pod from a template.
- `adoption`: which objects belong to a workload.
- `ranking`: which pods go first when there are too many.
- `hashes`: the short hashes in names and labels.
- `replicaset`: ReplicaSets and ReplicationControllers.
- `deployment_view`, `deployment_replicasets`, `deployment_scaling`, `deployment_status`, `deployment`: Deployments.
- `revisions`: ControllerRevisions.
- `statefulset_pods`, `statefulset`: StatefulSets.
- `daemonset_nodes`, `daemonset`: DaemonSets.
- `budget`: PodDisruptionBudgets.
"""
