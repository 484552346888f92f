"""Decisions: pure functions from (objects, clock, settings) to writes, status, events and the time of the next look.

Nothing here does I/O, sleeps or reads the clock. Each kind has a package; a controller of the same name in
`controllers` reads the caches, calls `decide` and applies the decision. Packages, in reading order:

- `events`: the event that a decision asks for.
- `job`, `cronjob`, `jobset`, `pytorchjob`, `trainjob`: training and batch jobs; `training`: what the last two share.
- `progress`: how far trainings are: their reports, and what their jobs show of them.
- `pod`: what the kubelet starts and stops, and a pod's status.
- `scheduling`, `volume`: the node of a pod, and the volume of a claim.
- `node`: taints, unreachable nodes and eviction.
- `autoscaler`: replicas that follow their load.
- `service`, `account`, `certificate`, `quota`, `garbagecollector`: the other control loops of a cluster.
- `queue`: quota in queues, as Kueue manages it.
- `samples`: curves of jobs, bounded in size.
- `run`: what `yard run` reports about a job.
"""
