"""ElasticDL's API under the name its programs import, on Torchyard's runtime. The runner puts it on the path."""
