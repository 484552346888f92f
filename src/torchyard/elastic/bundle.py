"""The runtime as one file that Python imports: a pod gets it from its coordinator, so its image needs only torch."""

from __future__ import annotations

import io
import zipfile
from functools import lru_cache
from pathlib import Path

HOME = Path(__file__).parent


@lru_cache(maxsize=1)
def bundle() -> bytes:
    """`torchyard.elastic` without the rest of the package, and `elasticai_api` beside it."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("torchyard/__init__.py", '"""The training runtime alone."""\n')
        for path in sorted(HOME.rglob("*.py")):
            inside = path.relative_to(HOME)
            top = Path() if inside.parts[0] == "compat" else Path("torchyard/elastic")
            rest = inside.relative_to("compat") if inside.parts[0] == "compat" else inside
            archive.writestr(str(top / rest), path.read_bytes())
    return whole.getvalue()


# Runs in a pod before anything of ours is there: fetch the runtime, then become the pod's agent.
BOOTSTRAP = """
import os, runpy, sys, tempfile, time, urllib.request
address = os.environ["TORCHYARD_ELASTIC_COORDINATOR"]
for attempt in range(600):
    try:
        held = urllib.request.urlopen(f"http://{address}/runtime.zip", timeout=10).read()
        break
    except OSError as error:
        if attempt % 20 == 0:
            print(f"waiting for the master at {address}: {error}", flush=True)
        time.sleep(min(1.0, 0.1 * (attempt + 1)))
else:
    sys.exit(f"no master answers at {address}")
path = os.path.join(tempfile.mkdtemp(prefix="torchyard-"), "runtime.zip")
open(path, "wb").write(held)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")]))
os.execvp(sys.executable, [sys.executable, "-m", "torchyard.elastic", "pod", "--", *sys.argv[1:]])
""".strip()
