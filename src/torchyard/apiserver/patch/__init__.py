"""The patch formats of a PATCH request as pure functions from (object, patch) to object.

Read in this order:

- `parse`: reads the Content-Type and body of a request; the verb calls this.
- `json_patch`: JSON Patch (RFC 6902).
- `merge_patch`: JSON Merge Patch (RFC 7386).
- `strategic_merge`, `strategic_merge_lists`: strategic merge patch.
- `yaml_to_json`: YAML bodies, as for server-side apply (see the package `apply`).
- `go_format`, `patch_errors`: values and errors in kube-apiserver's words.
"""
