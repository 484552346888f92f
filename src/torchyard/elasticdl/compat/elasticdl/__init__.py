"""ElasticDL's package name, for pods whose command names it."""
