"""The controllers as an operator on a Kubernetes cluster.

- `settings`: the flags, and the names of the installation.
- `operator`: the assembly: caches, leader election, controllers.
- `checks`, `permissions`, `part_checks`: what the cluster must provide, what the operator may do, and which parts run.
- `connections`, `http`, `admission`, `trainjob_reviews`, `certificates`: probes, metrics and the admission webhook.
- `progress`, `status_reports`, `token_reviews`: the progress of jobs, and the endpoint where TrainJobs report it.
- `samples`: the curves of jobs, for consoles.
- `metrics`, `logs`, `clock`, `tasks`: metrics, JSON logs, the API server's clock, concurrent tasks.
- `queues`: jobs in the queues of a cluster's Kueue.
- `manifests`, `install`: the objects of an installation, and how they are applied and removed.
- `monitoring`, `dashboards`: what an installation adds for Prometheus and Grafana.
- `diagnosis`: what `yard doctor` reports about a cluster.
"""
