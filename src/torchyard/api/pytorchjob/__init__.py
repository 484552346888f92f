"""PyTorchJob of kubeflow.org/v1.

Modules in reading order:

- `names`: group, labels, annotations
- `crd`: the CustomResourceDefinition
- `defaults`: defaults
- `validation`: validation beyond the schema
- `messages`: reasons, messages and events of the controller
"""
