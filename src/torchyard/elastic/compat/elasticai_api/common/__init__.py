"""Names of `elasticai_api.common`."""
