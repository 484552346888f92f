"""TrainJob, TrainingRuntime and ClusterTrainingRuntime of trainer.kubeflow.org/v1alpha1.

Modules in reading order:

- `names`: group, labels, names of the objects that a TrainJob owns
- `environment`: the variables that the plugins set
- `crd`: the CustomResourceDefinition of TrainJob
- `runtime_crd`: those of the runtimes
- `runtimes`: the runtimes that are installed
- `elastic`: the annotations of elastic jobs
- `validation`: validation beyond the schema, which needs the runtime of a job
- `messages`: reasons, messages and events of the controller
"""
