"""Assembly of the one-machine plane: which parts run in this process, settings, start, stop.

- `settings`: the settings of `yard up`, and the paths below the state directory.
- `plane_setup`: what the settings say: their checks, the served kinds, the plane's own objects.
- `plane`, `loading`: the parts, loaded, wired, started and stopped.
- `controllers`, `selection`: the controllers and how each is built; the syntax of `--controllers`.
- `node`, `images`, `python_choice`: the plane's node, its image store, and the interpreter of well-known images.
- `listen_address`, `lock`: where the plane listens, and one plane per state directory.
- `open_files`: the limit of open files.
- `watchdog`, `thread_stack`: what blocks the event loop.
- `process`: the plane as a process: foreground, detached, stopped.
- `status`: what `yard status` reports.
- `history`: the jobs that ended, and their logs.
- `sample_collector`: curves of jobs for the console.
- `console_mount`, `plane_console`: the console below `/console` of the API server.
- `backups`: backup and restore of the store.
- `controller_log`: the log of the pod that represents the controllers.
- `machine`, `bug_report`: what `yard doctor` reports about this machine, also as an archive.
- `target`: which cluster a command uses.
"""
