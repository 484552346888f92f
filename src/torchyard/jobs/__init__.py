"""What the command line, the SDK and `yard mcp` do with jobs, without a screen.

Modules in reading order:

- `target`: which cluster, and whether it is a plane of this machine (`local_plane`)
- `scripts`: a script or a function of a module as a job, with `workspace` (its folder), `dependencies` and
  `requirement_files` (its packages), both with `text_files`; `function_source`: a function of a program or notebook as
  a file
- `actions`: stop, resume, delete; events and reasons; `pending`: why a queued job waits
- `log_selection`, `log_stream`, `follow_logs`: the lines of replicas
- `past_jobs`: jobs that have ended
"""
