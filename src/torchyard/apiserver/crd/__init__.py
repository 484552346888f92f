"""Custom resources: validation of CustomResourceDefinitions (CRDs), and the objects they define.

All modules but `controller` and `conversion/` are pure functions of the CRD and the object; the API server's verbs call
them. They do not depend on the store, HTTP, or any built-in kind.

Read in this order:

- `definition/`: validation, defaults and status of CRDs themselves.
- `resource`: from a CRD to the resources that the server serves.
- `version`: one served version: prune, default, validate, print.
- `schema/`: the compiled structural schema.
- `cel_rules/`: `x-kubernetes-validations`.
- `columns`, `jsonpath`: additional printer columns.
- `scale`: the paths of the scale subresource.
- `conversion/`: conversion webhooks.
- `controller`: serves the stored CRDs, and deletes the objects of deleted ones.
"""
