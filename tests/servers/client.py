"""Drives `nanobot serve mcp` with the official Python client: `client.py PROGRAM ARGUMENT…`.

Prints one JSON object with what the client got.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    steps = []

    async def on_progress(progress, total, message):
        steps.append(message)

    async with stdio_client(server) as (reads, writes):
        async with ClientSession(reads, writes) as session:
            begun = await session.initialize()
            tools = await session.list_tools()
            read = await session.call_tool("read_file", {"path": "notes.md"})
            denied = await session.call_tool("write_file", {"path": "made", "content": "x"})
            answer = await session.call_tool("ask", {"message": "what do I need?"}, progress_callback=on_progress)
            resources = await session.list_resources()
            uris = [str(resource.uri) for resource in resources.resources]
            memory = await session.read_resource("nanobot://memory/MEMORY.md")
            await session.send_ping()
            print(
                json.dumps(
                    {
                        "server": begun.server_info.name,
                        "version": begun.protocol_version,
                        "tools": [tool.name for tool in tools.tools],
                        "read": read.content[0].text,
                        "denied": [denied.is_error, denied.content[0].text],
                        "answer": answer.content[0].text,
                        "steps": steps,
                        "uris": uris,
                        "memory": memory.contents[0].text,
                    }
                )
            )


asyncio.run(main())
