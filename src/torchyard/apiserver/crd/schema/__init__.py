"""A version's structural schema, compiled, and its uses: prune, default, validate.

Read in this order:

- `json_schema`, `node`: the schema in a CRD, and its compiled form.
- `prune`, `defaulting`, `metadata`: normalize an object.
- `validation`, `formats`, `lists`: validate an object.
- `quick_check`: fast checks for the common case of a valid object.
- `value_path`, `field_path`: paths in messages, and paths in CRDs.
- `resource_type`: the schema as the `Type` tree for patch, apply and OpenAPI.
"""
