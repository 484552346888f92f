"""What `yard run` reports about a job: is it done, how did it end, why is it pending, how far is it. Pure.

- `state`: the state of a job and which pods belong to it.
- `progress`: the progress that a log line reports.
- `failure`: the first container that failed; `waiting`: why a pod or a queued job waits; `explain`: both in words.
- `changes`: what a manifest changes in a job that exists.
- `image_pull`: which images pods wait for.
- `tracking`: links to TensorBoard, MLflow and W&B.
- `script_job`, `script_command`, `requirements`: the manifest of a script, the command of its pods, and the packages
  it needs; `function_call`: the program that calls a function of a module in them.
- `program`, `rerun`: the command line and environment of a job, and a job as a manifest again.
- `plan_text`: what a run would start, in words.
- `sweep`: one Indexed Job for all combinations of options.
- `record`: what is kept of a job that has ended; `metrics`: the numbers that its log names.
- `trace`: a job that has ended as a trace; `tensorboard`: its metrics as a file for TensorBoard.
- `summary`, `ranks`: one line about a job; its replicas and their ranks.
- `line_splitter`: log chunks into lines.
"""
