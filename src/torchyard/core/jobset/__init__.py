"""What to do about a JobSet: (objects, clock) → writes, status, events, next look. Pure.

- `view`: the input: a JobSet and its child Jobs, by what became of them.
- `decide`: the decision, one pass over a JobSet.
- `status`: the status under construction: conditions, restarts and counts of Jobs.
- `failure_policy`: what a failed Job means.
- `startup`: which replicated jobs may start: dependsOn and the startup policy.
- `children`, `identity`: the child Jobs, the headless service and the volume claims; their labels.
- `resume`: a suspended Job as it is resumed.
"""
