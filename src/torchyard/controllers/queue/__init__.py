"""Queues on the one-machine plane: workloads of jobs, scheduling, eviction, and the statuses of queues.

In reading order:

- `gvr`: the resources
- `stores`, `writer`: the scheduler's state kept up to date by informers; writes to workloads, in order
- `scheduler`, `pending_reporter`: runs scheduling cycles and writes their decisions, and why workloads are pending
- `workloads`: workloads over time: admission checks, time limits, stopped queues
- `finalizers`: deletion of what is in use
- `runtime_snapshots`: the runtimes of TrainJobs
- `priorities`: the priorities of jobs and pods, and what changes with a class
- `composer`, `jobs`, `pod_set_infos`, `pending_events`: jobs and their workloads
- `pod_groups`, `slices`: plain pods and elastic jobs
- `queue_status`, `metrics`: statuses of queues, and metrics
- `ignored_fields`: events about fields that need other settings
- `admission_fair_sharing`: what LocalQueues consumed over time
- `local_queues`: the queues that the plane creates for its machine
- `controller`: all of the above, assembled
- `external`, `kueue_v1beta1`: PyTorchJobs on a cluster with a Kueue of its own
"""
