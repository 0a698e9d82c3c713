// Drives `nanobot serve mcp` with the official TypeScript client: `node client.mjs SDK PROGRAM ARGUMENT…`, where SDK is the
// directory of the package. Prints one JSON object with what the client got.

import { pathToFileURL } from "node:url";

const [sdk, command, ...args] = process.argv.slice(2);
const part = (path) => import(pathToFileURL(`${sdk}/dist/esm/${path}`));
const { Client } = await part("client/index.js");
const { StdioClientTransport } = await part("client/stdio.js");

const client = new Client({ name: "story", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const tools = await client.listTools();
const read = await client.callTool({ name: "read_file", arguments: { path: "notes.md" } });
const denied = await client.callTool({ name: "write_file", arguments: { path: "made", content: "x" } });
const steps = [];
const answer = await client.callTool({ name: "ask", arguments: { message: "what do I need?" } }, undefined, {
  onprogress: (progress) => steps.push(progress.message),
});
const resources = await client.listResources();
const memory = await client.readResource({ uri: "nanobot://memory/MEMORY.md" });
await client.ping();
console.log(
  JSON.stringify({
    server: client.getServerVersion().name,
    tools: tools.tools.map((tool) => tool.name),
    read: read.content[0].text,
    denied: [denied.isError, denied.content[0].text],
    answer: answer.content[0].text,
    steps,
    uris: resources.resources.map((resource) => resource.uri),
    memory: memory.contents[0].text,
  }),
);
await client.close();
