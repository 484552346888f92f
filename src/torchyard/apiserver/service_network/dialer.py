"""Opens TCP connections to addresses of the cluster.

Pods have a network of their own that this process is not in, so the node opens the connections. A plane without a node
connects in the network of the machine.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

# From an address (or host name) and a port to a connected socket that does not block. Raises OSError.
Dialer = Callable[[str, int], Awaitable[socket.socket]]
# As net.Dialer in kube-apiserver's transports.
DIAL_SECONDS = 30.0


async def dial_machine_network(host: str, port: int) -> socket.socket:
    """Connect in the network of the machine."""
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # such as a label of more than 63 characters, which no resolver is asked for
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    error: OSError = ConnectionRefusedError(f"no address of {host}")
    for family, kind, protocol, _, address in addresses:
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
        except OSError as failure:
            connection.close()
            error = failure
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise error
