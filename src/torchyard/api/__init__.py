"""The API types: names, defaults, validation, table columns, error messages. Pure data and functions; the lowest layer.

Modules in reading order:

- `objects`: the type of a Kubernetes object
- `metadata`: owner references and deletion, as controllers use them
- `group_version`: GroupVersionKind and GroupVersionResource
- `gvr`: the GroupVersionResource of each built-in kind that several packages use
- `errors`: the base exception, and API errors as `Status` objects
- `field_errors`: errors of single fields, as upstream's field.Error
- `names`: validation of metadata: names, labels, annotations, finalizers
- `checks`: validation that many kinds share
- `node_selectors`: validation of node selectors
- `strategy`: the hooks by which a kind differs from a plain object
- `status_subresource`: the strategy of kinds with a status
- `kinds`: the strategy of each built-in kind
- `resources`: a served resource: names, verbs, schema, strategy
- `builtins`: the built-in resources
- `quantity`: quantities such as `100m` and `1.5Gi`
- `compute_resources`: names and quantities of cpu, memory and devices
- `times`: times and durations
- `conditions`: finding and setting conditions
- `selectors/`: label and field selectors
- `schema/`: the schemas of all kinds, decoding, protobuf
- `diff`: the difference between two objects, for messages
- `go_format`: values in messages as Go's fmt and encoding/json print them
- `merge_patch`: computing a merge patch
- `progress`: where jobs show their progress
- `usage_names`: names of what pods use beside cpu and memory
- `torchrun`: the environment variables of torchrun
- `patch`: applying strategic merge patches
- `manifests`: reading manifests, and explaining what is wrong with them
- `columns`: table columns: what `kubectl get` prints
- `table_cells`: texts of table cells
- `escapes`: texts without the escape sequences of terminals
- `printing`: Table responses
- `pod/`: Pod and PodTemplate; the packages of the other kinds have the same layout
- `job/`: Job and CronJob
- `workload/`: Deployment, StatefulSet, HorizontalPodAutoscaler and the like
- `service/`: Service, Endpoints, EndpointSlice, Ingress, NetworkPolicy
- `volume/`: PersistentVolume, PersistentVolumeClaim, StorageClass, the CSI kinds
- `cluster/`: Node, Namespace, ConfigMap, Secret and other small core kinds
- `event/`: Event in both API groups
- `quota/`: ResourceQuota and LimitRange
- `access/`: RBAC, admission configuration, certificate requests, flow control
- `device/`: dynamic resource allocation
- `pytorchjob/`: PyTorchJob of kubeflow.org
- `trainjob/`: TrainJob and its runtimes of trainer.kubeflow.org
- `queue/`: the kinds of Kueue
"""
