"""JobSet of jobset.x-k8s.io/v1alpha2.

Modules in reading order:

- `names`: group, labels, annotations, names of child objects
- `crd`: the CustomResourceDefinition
- `defaults`: defaults, set when a JobSet is created
- `validation`, `volume_claims`: validation beyond the schema
- `messages`: reasons, messages and events of the controller
"""
