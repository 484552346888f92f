"""Write the plain manifests and the chart under deploy/ from the objects that `yard install` applies.

python tools/generate_deploy.py [DIRECTORY]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchyard.operator.manifests import Installation, as_yaml, definitions, objects, queue_objects, sdk_objects
from torchyard.operator.settings import IMAGE

DEPLOY = Path(__file__).parent.parent / "deploy"
_MARK = "chart-value-"
# The values of the chart and their place in the templates.
_VALUES = {
    f"{_MARK}image": "{{ .Values.image }}",
    f"{_MARK}namespace": "{{ .Release.Namespace }}",
    f"{_MARK}replicas": "{{ .Values.replicas }}",
}


def main(directory: Path = DEPLOY) -> None:
    """Write the objects of an installation as files."""
    install = Installation(IMAGE)
    templates, crds = directory / "chart" / "templates", directory / "chart" / "crds"
    for folder in (templates, crds):
        folder.mkdir(parents=True, exist_ok=True)
    (directory / "torchyard.yaml").write_text(as_yaml([*definitions(), *objects(install), *sdk_objects(install)]))
    for definition in definitions():
        (crds / f"{definition['spec']['names']['plural']}.yaml").write_text(as_yaml([definition]))
    marked = replace(install, image=f"{_MARK}image", namespace=f"{_MARK}namespace", replicas=f"{_MARK}replicas")
    # Helm creates the release's namespace.
    (templates / "operator.yaml").write_text(_template([obj for obj in objects(marked) if obj["kind"] != "Namespace"]))
    queues = _template(queue_objects(marked))
    (templates / "queues.yaml").write_text(f"{{{{- if .Values.queues }}}}\n{queues}{{{{- end }}}}\n")


def _template(manifests: list[dict[str, Any]]) -> str:
    text = as_yaml(manifests)
    for mark, value in _VALUES.items():
        text = text.replace(mark, value)
    return text


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
