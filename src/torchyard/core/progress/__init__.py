"""How far trainings are: what they report, and what of it their jobs show. Pure.

- `reports`: a report, and the place that every report passes.
- `owners`: the job of a pod, and the rank of the pod in it.
- `bars`: progress bars, also nested ones; `lines`: what the lines of a log report.
- `log_polling`: which logs of a cluster are read, when, and what is new in them.
- `trainer_status`: the wire format of KEP-2779, checked and as a text.
- `endpoint`: the reports of TrainJobs, as they arrive.
- `job_progress`: the reports of one job, combined.
- `schedule`: when a job is written, so that a thousand reporting jobs cost little.
"""
