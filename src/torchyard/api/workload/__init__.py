"""Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController, autoscalers and disruption budgets.

Modules in reading order:

- `strategy`: strategies of the workloads
- `defaults`: defaults of the workloads
- `validation`: validation on create and update
- `templates`: whether two pod templates are the same
- `labels`, `messages`: labels, annotations, reasons and messages of the controllers
- `status`: validation of status updates
- `autoscaler`: HorizontalPodAutoscaler in autoscaling/v2
- `autoscaler_v1`: conversion to and from autoscaling/v1
- `autoscaler_messages`: conditions and messages of the autoscaler
- `budget`: PodDisruptionBudget
- `columns`: table columns
"""
