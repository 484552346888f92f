"""What to do about a batch/v1 Job: (objects, clock, backoff) → writes, status, events, next look. Pure.

- `view`: the input: a job, its pods, and helpers to read them.
- `decide`: the decision, one pass over a job.
- `counts`: successes and failures so far.
- `pod_plan`: which pods to create and to delete.
- `pods`: the pod that a job creates.
- `status`: the status under construction, with upstream's accounting of finished pods.
- `policies`: podFailurePolicy and successPolicy.
- `backoff`, `indexes`, `adoption`, `ttl`: the delay before a retry, completion indexes, adopted pods, time to live.
"""
