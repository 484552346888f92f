"""Jobs and CronJobs.

Modules in reading order:

- `strategy`: strategies
- `defaults`: defaults, and the generated selector
- `validation`: validation on create and update
- `policies`: validation of podFailurePolicy and successPolicy
- `status`: validation of status updates
- `indexes`: parser of completion indexes
- `schedule`: parser of cron schedules
- `labels`: labels, annotations and finalizers of a Job's pods
- `messages`: conditions, reasons and messages of the Job controller
- `cron_messages`: reasons and messages of the CronJob controller
- `columns`: table columns
"""
