"""Server-side apply and managed fields, after structured-merge-diff.

Read in this order:

- `managed_fields`: `record_update` and `apply`; the verbs call these.
- `endpoint`: the endpoint of a write, and the fields that it resets.
- `managers`: the entries of `metadata.managedFields`.
- `fieldset`, `path_elements`: sets of field paths in the form of `fieldsV1`.
- `to_fieldset`: the field set of an object.
- `compare`: the fields that differ between two objects.
- `merge`, `prune`: put an applied object into the live one, and remove what is no longer applied.
- `conflicts`: the 409 for fields of other managers.
- `validate`: the schema errors of an applied object.
- `last_applied`: the annotation of client-side apply.
- `values`: which values are owned as a whole, and which part by part.
"""
