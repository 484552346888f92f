"""CustomResourceDefinitions themselves: validation, defaults and status.

Read in this order:

- `strategy`: the strategy of the kind; the server calls this.
- `spec`: defaults and validation of the specification.
- `versions`: validation of one version.
- `schema_validation`, `structural`, `default_validation`: validation of a version's OpenAPI schema.
- `api_approval`: the approval annotation of protected groups.
- `status`: accepted names, conditions and stored versions.
"""
