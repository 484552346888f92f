"""The program of a TrainJob's initializers: brings a dataset or a model onto the volume that the nodes share.

`python -m torchyard.initializer dataset` or `model`, with the variables that Trainer's initializers read. It imports
only the standard library, and what a scheme needs when it is used.

- `request`: what to bring from where, from the variables.
- `errors`: what keeps it from coming: field, reason, fix.
- `file_source`, `hugging_face`, `s3`: one module for each kind of place.
- `brought_files`: which files an earlier source has brought, and how those of another replace them.
- `initialize`: brings it once, and again after an interruption.
"""
