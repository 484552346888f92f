"""What `yard run` reports about a job: is it done, how did it end, why is it pending, how far is it. Pure.

- `state`: the state of a job and which pods belong to it.
- `progress`: the progress that a log line reports.
- `failure`: the first container that failed; `waiting`: why a pod or a queued job waits; `explain`: both in words.
- `changes`: what a manifest changes in a job that exists.
- `script_job`: the manifest of a script.
- `summary`, `ranks`: one line about a job; the rank of a replica.
- `line_splitter`: log chunks into lines.
"""
