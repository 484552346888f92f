"""What to do about a batch/v1 Job: (objects, clock, memory of failures) → writes, status, events, wake-at. Pure."""
