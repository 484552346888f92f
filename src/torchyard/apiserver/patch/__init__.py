"""The patch formats of a PATCH request as pure functions from (object, patch) to object.

Read in this order:

- `parse`: reads the Content-Type and body of a request; the verb calls this.
- `json_patch`: JSON Patch (RFC 6902).
- `merge_patch`: JSON Merge Patch (RFC 7386).
- `yaml_to_json`: YAML bodies, as for server-side apply (see the package `apply`).

Strategic merge patches are in `api.patch`, because controllers apply them too.
"""
