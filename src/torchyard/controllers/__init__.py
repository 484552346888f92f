"""Controllers: read informer caches, ask `core` for a decision, apply it through the API.

Start with `loop`, the contract of every controller. Then, in reading order:

- `loop`: keys from informers, one reconcile per key at a time, retries with backoff.
- `mutation_cache`, `concurrency`: reading one's own writes, and concurrent writes.
- `child_caches`: the caches of the pods and services of jobs.
- `pytorchjob`: PyTorchJobs, on the plane and on a cluster.
- `jobset`, `jobset_metrics`: JobSets, on the plane and on a cluster.
- `trainjob`, `trainjob_objects`, `trainjob_failures`, `trainjob_runtimes`: TrainJobs and their runtimes.
- `job_metrics`, `job_traces`, `otlp`: the number of jobs by state, for Prometheus; traces of jobs, for OpenTelemetry,
  and how they are sent.
- `progress`, `progress_logs`: the progress that trainings report, written into their jobs; from logs on a cluster.
- `job`, `job_pods`, `cronjob`, `ttl_after_finished`: batch jobs.
- `orphans`, `workload`: Deployments, ReplicaSets, StatefulSets, DaemonSets and PodDisruptionBudgets.
- `scheduler`, `scheduler_writes`: pods to nodes.
- `volume_binder`, `volume_protection`, `ephemeral_volumes`, `local_provisioner`: storage.
- `node_lifecycle`, `pod_eviction`: unreachable nodes, taints and their pods.
- `service_pods`, `service_slices`, `endpoints`, `endpointslices`, `endpointslice_mirroring`, `service_cidr`: services.
- `autoscaler`: HorizontalPodAutoscalers.
- `namespaces`, `namespace_objects`, `quotas`, `token_secrets`, `certificate_requests`, `role_aggregation`,
`garbage_collector`: the rest of kube-controller-manager that a plane needs.
- `operator_pod`: the pod that represents these controllers on a plane.
- `queue`: quota in queues, as Kueue manages it.
"""
