"""`--notify`: a webhook or a command that learns how a job ended."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import urllib.error
import urllib.request

SECONDS = 10.0


async def notify(target: str, job: str, state: str, exit_code: int, message: str) -> str:
    """Tell a webhook (JSON by POST) or a command (variables of its environment). Returns why that failed, or ''."""
    fields = {"job": job, "state": state, "exitCode": exit_code, "message": message}
    if target.startswith(("http://", "https://")):
        return await asyncio.to_thread(_post, target, fields)
    variables = {"YARD_JOB": job, "YARD_STATE": state, "YARD_EXIT_CODE": str(exit_code), "YARD_MESSAGE": message}
    process = await asyncio.create_subprocess_shell(target, env={**os.environ, **variables})
    try:
        async with asyncio.timeout(SECONDS):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"it did not end within {SECONDS:.0f} s"
    return f"exit code {code}" if code else ""


def _post(url: str, fields: dict[str, object]) -> str:
    request = urllib.request.Request(  # noqa: S310 - http(s) only, above
        url, data=json.dumps(fields).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):  # noqa: S310 - http(s) only, above
            return ""
    except (OSError, urllib.error.URLError, http.client.HTTPException, ValueError) as error:
        return str(error) or type(error).__name__
