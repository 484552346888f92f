"""The runtime as one zip file that Python imports: a pod gets it from its coordinator and needs only torch."""

from __future__ import annotations

import io
import zipfile
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parent


@lru_cache(maxsize=1)
def bundle() -> bytes:
    """Return a zip file with `torchyard.elastic`, without the rest of `torchyard`, and with `elasticai_api`."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("torchyard/__init__.py", '"""The training runtime alone."""\n')
        for path in sorted(PACKAGE.rglob("*.py")):
            relative = path.relative_to(PACKAGE)
            top = Path() if relative.parts[0] == "compat" else Path("torchyard/elastic")
            rest = relative.relative_to("compat") if relative.parts[0] == "compat" else relative
            archive.writestr(str(top / rest), path.read_bytes())
    return content.getvalue()


# Runs in a pod whose image has no torchyard: fetch the runtime, then run the pod's agent.
BOOTSTRAP = """
import os, sys, tempfile, time, urllib.error, urllib.request
address = os.environ["TORCHYARD_ELASTIC_COORDINATOR"]
token = os.environ["TORCHYARD_ELASTIC_TOKEN"]
request = urllib.request.Request(f"http://{address}/runtime.zip", headers={"Authorization": f"Bearer {token}"})
for attempt in range(600):
    try:
        runtime = urllib.request.urlopen(request, timeout=10).read()
        break
    except urllib.error.HTTPError as error:
        sys.exit(f"the master refuses this worker: address={address} status={error.code}")
    except OSError as error:
        if attempt % 20 == 0:
            print(f"waiting for the master: address={address} error={error}", flush=True)
        time.sleep(min(1.0, 0.1 * (attempt + 1)))
else:
    sys.exit(f"the master does not respond: address={address}")
path = os.path.join(tempfile.mkdtemp(prefix="torchyard-"), "runtime.zip")
open(path, "wb").write(runtime)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")]))
os.execvp(sys.executable, [sys.executable, "-m", "torchyard.elastic", "pod", "--", *sys.argv[1:]])
""".strip()
