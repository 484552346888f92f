"""PyTorchJob of kubeflow.org/v1: its names and words, defaults, rules, and its definition as a custom resource."""
