// A small MCP server with the official SDK; the tests run it inside a sandbox.
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const said = (text) => ({ content: [{ type: 'text', text }] });
let count = 0;

const server = new McpServer({ name: 'test', version: '1' });
server.registerTool(
  'add',
  { description: 'Adds.', inputSchema: z.object({ a: z.number(), b: z.number() }) },
  async ({ a, b }) => said(String(a + b)),
);
server.registerTool('count', { description: 'Counts its calls.', inputSchema: z.object({}) }, async () =>
  said(String(++count)),
);
server.registerTool(
  'echo',
  { description: 'Says it again.', inputSchema: z.object({ text: z.string() }) },
  async ({ text }) => said(text),
);
server.registerTool('fail', { description: 'Fails.', inputSchema: z.object({}) }, async () => {
  throw new Error('as asked');
});
server.registerTool('draw', { description: 'Draws.', inputSchema: z.object({}) }, async () => ({
  content: [
    { type: 'text', text: 'a dot:' },
    { type: 'image', data: PIXEL, mimeType: 'image/png' },
  ],
}));
server.registerTool('ask', { description: 'Asks back.', inputSchema: z.object({}) }, async () => {
  await server.server.ping();
  return said('asked');
});
server.registerTool(
  'hang',
  { description: 'Hangs.', inputSchema: z.object({}) },
  () => new Promise(() => {}),
);
server.registerTool('die', { description: 'Dies.', inputSchema: z.object({}) }, async () => process.exit(1));
console.error('the server is up');
await server.connect(new StdioServerTransport());
