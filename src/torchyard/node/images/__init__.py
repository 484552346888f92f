"""Images without a container engine: well-known names mapped to this machine's programs, and images built here.

Reading order:

- `model`: an image, its config and its name
- `store`: the images of a node, and which one a name resolves to
- `well_known`, `bundled_programs`, `python`: mapped images, their training programs, their Python environment
- `tree`, `unpack`: files of images by descriptor, and archives of them
- `dockerfile`, `dockerignore`, `build`, `run`, `written`: `yard image build`
- `load`, `save`: OCI archives
- `engine`: images that podman or docker has
"""
