// A client of WhatsApp for the bridge's own server: it has the interface of the one there, and no account. Lines on standard
// input are messages that it receives; what it sends goes to standard output.
import { createInterface } from 'node:readline';

export interface InboundMessage {
  id: string;
  sender: string;
  pn: string;
  content: string;
  timestamp: number;
  isGroup: boolean;
}

export class WhatsAppClient {
  constructor(private options: any) {}

  async connect(): Promise<void> {
    createInterface({ input: process.stdin }).on('line', (line) => this.options.onMessage(JSON.parse(line)));
    this.options.onStatus('connected');
  }

  async sendMessage(to: string, text: string): Promise<void> {
    if (to.startsWith('0@')) throw new Error('Not connected');
    process.stdout.write(JSON.stringify({ to, text }) + '\n');
  }

  async disconnect(): Promise<void> {}
}
