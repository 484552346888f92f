"""`yard mcp`: the daily commands as tools of coding agents, by the Model Context Protocol on standard input and output.

The protocol is implemented here: of it, a server of tools needs four methods and one message for each line, while the
reference package `mcp` brings pydantic, starlette, uvicorn and a dozen more packages into every installation. The tests
drive this server with that package's client.

Modules in reading order:

- `command`: `yard mcp`
- `tools`: the tools, and the command line of each
- `tool`: what a tool is, and how its arguments are checked
- `server`: JSON-RPC 2.0, one message for each line
- `process`: runs one command of a tool
"""
