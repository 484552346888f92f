"""The patch formats of a PATCH request as pure functions from (object, patch) to object; `content` picks the one."""
