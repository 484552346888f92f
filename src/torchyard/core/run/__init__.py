"""What `yard run` reports about a job: is it done, how did it end, why is it pending, how far is it. Pure.

- `state`: the state of a job, its first failure, why a pod is pending.
- `progress`: the progress that a log line reports.
- `line_splitter`: log chunks into lines.
"""
