"""What to do about a CronJob: (objects, clock) → the job to start, jobs to delete, status, events, next look. Pure.

- `decide`: the decision.
- `schedule`: when a schedule is due.
"""
