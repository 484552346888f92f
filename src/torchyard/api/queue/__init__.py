"""The kinds of kueue.x-k8s.io, in reading order:

- `names`: group, kinds, labels, annotations and the values of fields
- `messages`: condition types, reasons, events and messages of Workloads
- `queue_messages`, `job_messages`: the same of queues and of the jobs they manage
- `advice_messages`: what is added to explain a pending workload
- `configuration_messages`: Kueue's configuration, and features that are not supported
- `schemas`, `crd`: the schemas in the stored version, and the CustomResourceDefinitions in both versions
- `conversion`: between the two versions
- `quantities`, `taints`, `validation`, `workload_validation`: the rules that a schema does not express
- `pod_template_validation`: the same for the templates of workloads
- `job_validation`: the labels and annotations of queued jobs and pods
- `unsupported`: the fields that are refused, because nothing here implements them
"""
