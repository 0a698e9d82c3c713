// Drives `nanobot serve acp` with the official TypeScript client: `node acp-client.mjs SDK PROGRAM ARGUMENT…`, where SDK is the directory of
// the package. It allows each call once, and prints one JSON object with what it got.

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, command, ...args] = process.argv.slice(2);
const { client, methods, ndJsonStream, PROTOCOL_VERSION } = await import(pathToFileURL(`${sdk}/dist/v1/stable/acp.js`));
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
const updates = [];
const asked = [];
const got = await client({ name: "story" })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    asked.push(params.toolCall.title);
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onNotification(methods.client.session.update, ({ params }) => {
    updates.push(params.update);
  })
  .connectWith(stream, async (peer) => {
    const begun = await peer.request(methods.agent.initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
    const opened = await peer.request(methods.agent.session.new, { cwd: process.cwd(), mcpServers: [] });
    const { sessionId } = opened;
    const text = (text) => ({ sessionId, prompt: [{ type: "text", text }] });
    const first = await peer.request(methods.agent.session.prompt, text("write a note"));
    await peer.request(methods.agent.session.setMode, { sessionId, modeId: "plan" });
    const image = { type: "image", mimeType: "image/png", data: IMAGE };
    const prompt = [{ type: "text", text: "and now?" }, image];
    const second = await peer.request(methods.agent.session.prompt, { sessionId, prompt });
    const before = updates.length;
    await peer.request(methods.agent.session.load, { sessionId, cwd: process.cwd(), mcpServers: [] });
    return {
      version: begun.protocolVersion,
      modes: opened.modes.availableModes.map((mode) => mode.id),
      stops: [first.stopReason, second.stopReason],
      replayed: updates.slice(before).map((update) => [update.sessionUpdate, update.content?.text]),
    };
  });
agent.stdin.end();
console.log(JSON.stringify({ ...got, updates, asked }));
process.exit(0);
