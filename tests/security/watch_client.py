"""Opens many watches from one process, counts the events that each receives, and reports on standard output.

Run as a program: URL, CA, TOKEN, PATH, COUNT, EVENTS. Prints `open N` when all watches have their responses, and
`received N` when each has had so many events.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import sys
from urllib.parse import urlsplit


async def main(url: str, ca: str, token: str, path: str, count: int, events: int) -> None:
    parts, context = urlsplit(url), ssl.create_default_context(cafile=ca)
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    slots = asyncio.Semaphore(50)
    readers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def start() -> None:
        async with slots:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context, limit=1 << 14)
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 OK" in head, head
            readers.append((reader, writer))

    async def receive(reader: asyncio.StreamReader) -> int:
        received = 0
        while received < events:
            received += (await reader.read(1 << 14)).count(b'"type":"')
        return received

    await asyncio.gather(*(start() for _ in range(count)))
    print("open", len(readers), flush=True)
    received = await asyncio.gather(*(receive(reader) for reader, _ in readers))
    print("received", sum(received), flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    url, ca, token, path, count, events = sys.argv[1:]
    asyncio.run(main(url, ca, token, path, int(count), int(events)))
