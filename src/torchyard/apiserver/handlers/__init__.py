"""The handlers of requests that are routed and authorized.

Read in this order:
- `resource`: the eight verbs of stored resources;
- `missing_controllers`: a warning for kinds that no controller of this plane acts on;
- `status_reports`: where the nodes of TrainJobs report their progress;
- `discovery`: /api, /apis and /openapi;
- `non_resource`: version, health, metrics and the rest of the non-resource URLs.
"""
