"""ElasticDL's API under the name that programs import. The agent adds it to the workers' path."""
