// Starts the bridge's own server: bridge.mjs PORT TOKEN.
import { BridgeServer } from './server.js';

console.log = (...words) => console.error(...words);
await new BridgeServer(Number(process.argv[2]), '/tmp', process.argv[3]).start();
process.stdout.write('ready\n');
