"""What to do about a PyTorchJob: (objects, clock, settings) → writes, status, events, next look. Pure.

- `view`: the input: a job, its pods and services by replica, the settings.
- `decide`: the decision, one pass over a job.
- `status`: the status under construction, with upstream's rules for conditions.
- `failures`: failed pods, restarts and the backoff limit.
- `failure_events`: events about exits, pending pods and the job's size.
- `replicas`, `environment`: the pod and service of a replica, and its variables.
- `gang`, `autoscaler`: the PodGroup and the HorizontalPodAutoscaler of a job.
"""
