"""Samples of jobs over time: resource usage, progress, metrics. Bounded in memory whatever the jobs do.

Modules in reading order:

- `series`: the points of one curve, at most a fixed number, at a resolution that halves as the curve grows
- `table`: the curves of all jobs, with a limit on their number
- `owners`: the job that a pod belongs to
- `usage`: the usage of a pod as samples of its job
"""
