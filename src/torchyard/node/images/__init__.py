"""Images without a container engine: well-known names mapped to this machine's programs, and images built here.

Reading order:

- `model`: an image, its config and its name
- `store`: the images of a node, and which one a name resolves to
- `well_known`, `python`: mapped images and their Python environment
- `bundled_programs`, `elastic_runtime`, `file_trees`: the programs and the runtime that mapped images contain
- `tree`, `unpack`: files of images by descriptor, and archives of them
- `dockerfile`, `dockerignore`, `build`, `run`, `written`: `yard image build`
- `load`, `save`, `atomic_file`: OCI archives
- `engine`: images that podman or docker has
"""
