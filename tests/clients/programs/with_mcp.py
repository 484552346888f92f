"""The reference client of the Model Context Protocol: lists the tools and calls those that it is given.

Arguments: the command of the server as JSON, the calls as JSON. Prints one JSON object for each answer.
"""

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(command: list[str], calls: list[list[Any]]) -> None:
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        greeting = await session.initialize()
        print(json.dumps(greeting.model_dump(mode="json", by_alias=True, exclude_none=True)))
        listed = await session.list_tools()
        print(json.dumps(listed.model_dump(mode="json", by_alias=True, exclude_none=True)))
        for name, arguments in calls:
            answer = await session.call_tool(name, arguments)
            print(json.dumps(answer.model_dump(mode="json", by_alias=True, exclude_none=True)))


asyncio.run(main(json.loads(sys.argv[1]), json.loads(sys.argv[2])))
