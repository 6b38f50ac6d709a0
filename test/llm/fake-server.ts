import http from 'node:http';
import type { AddressInfo } from 'node:net';

/** What the fake does with one request: writes an answer, or part of one, or nothing. */
export type Answer = (request: http.IncomingMessage, response: http.ServerResponse) => void;

/**
 * A stand-in for an LLM server that answers wrongly, which the real one cannot be made to do. It speaks
 * HTTP over a real socket.
 */
export async function fakeServer(answer: Answer) {
  const server = http.createServer((request, response) => {
    request.resume();
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${port}`, close };
}

/** An event stream as llama.cpp writes it. */
export function stream(events: readonly unknown[]): Answer {
  return (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const event of events) response.write(`data: ${JSON.stringify(event)}\n\n`);
    response.end();
  };
}
