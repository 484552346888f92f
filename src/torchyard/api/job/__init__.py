"""Jobs and CronJobs.

Read `strategy.py`, `defaults.py`, `validation.py` with `policies.py` (podFailurePolicy, successPolicy), `status.py`
(validation of status updates); then `indexes.py` and `schedule.py` (parsers), `labels.py`, `messages.py` and
`cron_messages.py` (texts of the controllers), `columns.py` (`kubectl get`).
"""
