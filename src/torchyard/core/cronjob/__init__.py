"""What to do about a CronJob: (objects, clock) → the job to start, jobs to delete, status, events, wake-at. Pure."""
