// Serves a stdio MCP server over streamable HTTP, message by message: `node http-bridge.mjs SDK PROGRAM ARGUMENT…`, where SDK is the
// directory of the official SDK for TypeScript. Each session starts a program of its own. The first line of output is the URL.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [sdk, command, ...args] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${sdk}/dist/esm/${path}.js`));
const { StdioClientTransport } = await load("client/stdio");
const { StreamableHTTPServerTransport } = await load("server/streamableHttp");
const sessions = new Map();

async function open() {
  const onsessioninitialized = (id) => sessions.set(id, client);
  const client = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
  const program = new StdioClientTransport({ command, args, env: process.env });
  // Progress belongs to the stream of the request with its token.
  const requests = new Map();
  client.onmessage = (message) => {
    const token = message.params?._meta?.progressToken;
    if (token !== undefined) requests.set(token, message.id);
    return program.send(message);
  };
  program.onmessage = (message) => client.send(message, { relatedRequestId: requests.get(message.params?.progressToken) });
  client.onclose = () => program.close();
  await program.start();
  await client.start();
  return client;
}

const server = createServer(async (request, response) => {
  const client = sessions.get(request.headers["mcp-session-id"]) ?? (await open());
  await client.handleRequest(request, response);
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
process.on("SIGTERM", () => process.exit(0));
