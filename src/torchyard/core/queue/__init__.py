"""Queues: which workloads get quota, in which flavor and order, and which are preempted. Decisions only, no I/O.

Kueue's cache, pending queues, snapshot and scheduler, in reading order:

- `resources`, `pod_defaults`: quantities; what is added to pods when they are created
- `requirements`, `workload_info`: what a workload needs; a workload as the scheduler sees it
- `specs`, `flavors`: ClusterQueues, cohorts and flavors, parsed
- `settings`: of fair sharing, and of workloads over time
- `quota`, `dominant_resource_share`: the tree of quota that usage is counted in, and simulations on it; how much a
  part of it borrows
- `borrowing`: how far up that tree a quantity comes from
- `flavor_assigner`: which flavors a workload gets, and whether it fits
- `cluster_queue`: a ClusterQueue at run time, with its heaps of pending workloads
- `hierarchy`, `quota_objects`: the ClusterQueues under their cohorts, built from the objects
- `eligibility`: whether a workload may be queued at all
- `fair_preemption`, `fair_sharing`: preemption and the order of a cycle by dominant resource shares
- `admission_fair_sharing`: what LocalQueues consumed over time
- `minimal_targets`, `preemption`, `nomination`, `preemptors`: which of the candidates are needed; preemption targets;
  the workloads of a cycle; those that wait for targets
- `cache`, `pending`, `requeue`: quota in use; pending workloads; which of them to retry when quota is released
- `state`: the three of them together, updated object by object
- `snapshot`, `decisions`, `nominator`, `scheduler`: one scheduling cycle
- `lifecycle`, `kueue_configuration`: the status of a workload over time, and the settings for it
- `ignored_fields`: fields of queues that need other settings
- `integrations`, `jobset_integration`, `trainjob_integration`: jobs as workloads
- `pod_groups`, `slices`: plain pods and elastic jobs as workloads
- `advice`: what a user can do about a pending workload
- `queue_status`, `visibility`, `explanation`: the status of queues; positions, estimates and reasons for users
- `kueue_detection`: how a cluster's own Kueue treats PyTorchJobs
"""
