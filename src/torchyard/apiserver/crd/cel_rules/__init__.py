"""x-kubernetes-validations: CEL rules, compiled when a CRD is written and evaluated when its objects are.

Import these modules lazily: a server without such rules does not load CEL.

Read in this order:

- `values`: a schema's CEL types, and JSON values converted to them.
- `compilation`: compiles the rules of a schema.
- `rule_errors`: the errors of rules in a new or changed CRD.
- `validation`: evaluates rules on an object or an update.
"""
