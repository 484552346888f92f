"""Names of `elasticai_api.pytorch`."""
