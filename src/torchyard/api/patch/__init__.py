"""Strategic merge patches, which the API server and controllers apply.

Read in this order:

- `strategic_merge`, `strategic_merge_lists`: strategic merge patch.
- `patch_errors`: errors in kube-apiserver's words; the other patch formats share them.
"""
