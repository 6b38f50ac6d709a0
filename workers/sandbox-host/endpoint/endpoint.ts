import { randomBytes } from 'node:crypto';
import { chmodSync } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { EndpointAnswer, EndpointEvent } from '../../../contracts/endpoint.ts';
import { type Refusal, readBody, refuse } from './requests.ts';

/** Name of the socket in a sandbox's control folder. No shell's folder is called so. */
export const ENDPOINT_SOCKET = 'llm.sock';

/** What a hostile program can take of the host: connections, unanswered calls, bytes of these, and time. */
const MOST_CONNECTIONS = 64;
const MOST_CALLS = 16;
const MOST_BYTES = 16 * 1024 ** 2;
const TIMES = {
  headersTimeout: 10_000,
  /** For the whole request. */
  requestTimeout: 60_000,
  keepAliveTimeout: 5_000,
  connectionsCheckingInterval: 5_000,
};
/** Milliseconds in which a program has to take its answer. */
const TAKE_MS = 30_000;

/** A call that waits for its answer. */
interface Call {
  readonly id: string;
  readonly body: string;
  readonly response: ServerResponse;
  /** The present holder knows of it. */
  told: boolean;
}

/**
 * The endpoint of one sandbox: takes what its programs ask over HTTP, gives it to whoever holds the sandbox, and
 * waits for the answer for as long as it takes. Knows nothing of models or tokens.
 */
export class Endpoint {
  private readonly server: Server;
  private readonly folder: FileHandle;
  private readonly model: string;
  private readonly calls = new Map<string, Call>();
  /** Calls that the holder knows of and that have been given up since. */
  private readonly gone: string[] = [];
  private waiting: ((event: EndpointEvent | null) => void) | null = null;
  /** Of this endpoint's calls alone: a sandbox that takes the place of one that is gone has its ledger. */
  private readonly prefix = randomBytes(6).toString('hex');
  private numbered = 0;
  private bytes = 0;

  private constructor(folder: FileHandle, model: string) {
    this.folder = folder;
    this.model = model;
    this.server = createServer({ ...TIMES, maxHeaderSize: 16_384 }, (request, response) =>
      this.serve(request, response),
    );
    this.server.maxConnections = MOST_CONNECTIONS;
  }

  /** Listens in a folder of the host that the sandbox sees. */
  static async open(folder: string, model: string): Promise<Endpoint> {
    // By the folder's descriptor, which stays open as long as the socket has that name: the path itself may be
    // longer than the 107 bytes that a socket's address can hold.
    const handle = await open(folder, 'r');
    try {
      const endpoint = new Endpoint(handle, model);
      const path = `/proc/self/fd/${handle.fd}/${ENDPOINT_SOCKET}`;
      await rm(path, { force: true });
      await new Promise<void>((resolve, reject) => {
        endpoint.server.once('error', reject);
        endpoint.server.listen(path, resolve);
      });
      chmodSync(path, 0o666); // what runs inside may be another user; nobody else gets into this folder
      return endpoint;
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** The next thing that the holder has to know; null when another asks or takes over, or `signal` is aborted. */
  next(signal: AbortSignal): Promise<EndpointEvent | null> {
    this.waiting?.(null);
    const event = this.untold();
    if (event || signal.aborted) return Promise.resolve(event);
    return new Promise((resolve) => {
      const tell = (told: EndpointEvent | null): void => {
        this.waiting = null;
        signal.removeEventListener('abort', stop);
        resolve(told);
      };
      const stop = (): void => tell(null);
      signal.addEventListener('abort', stop);
      this.waiting = tell;
    });
  }

  /** Answers a call; false if its program has given it up. */
  answer({ id, status, contentType, body }: Omit<EndpointAnswer, 'fence'>): Promise<boolean> {
    const response = this.calls.get(id)?.response;
    if (!response || response.headersSent) return Promise.resolve(false);
    response.socket?.setTimeout(TAKE_MS, () => response.destroy());
    response.writeHead(status, { 'content-type': contentType, 'content-length': Buffer.byteLength(body) });
    return new Promise((resolve) => {
      response.once('finish', () => resolve(true));
      response.once('close', () => resolve(false));
      response.end(body);
    });
  }

  /** A new holder knows nothing: it is told of everything that is unanswered. */
  handOver(): void {
    this.gone.length = 0;
    for (const call of this.calls.values()) call.told = false;
    this.waiting?.(null);
  }

  /** Whatever is unanswered is broken off. */
  async close(): Promise<void> {
    this.waiting?.(null);
    this.server.closeAllConnections();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
    await this.folder.close();
  }

  private untold(): EndpointEvent | null {
    const id = this.gone.shift();
    if (id !== undefined) return { event: 'gone', id };
    const call = [...this.calls.values()].find(({ told }) => !told);
    if (!call) return null;
    call.told = true;
    return { event: 'call', id: call.id, body: call.body };
  }

  private happened(): void {
    const tell = this.waiting;
    const event = tell && this.untold();
    if (event) tell(event);
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').replace(/\?.*$/s, '').replace(/^\/v1(?=\/)/, '');
    if (request.method === 'GET' && path === '/models') {
      const model = { id: this.model, object: 'model', created: 0, owned_by: 'rollouts' };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ object: 'list', data: [model] }));
      return;
    }
    if (request.method !== 'POST' || path !== '/chat/completions') {
      refuse(request, response, { status: 404, code: 'not_found', message: NOT_FOUND });
      return;
    }
    if (this.calls.size >= MOST_CALLS) return refuse(request, response, BUSY);
    const id = `${this.prefix}.${++this.numbered}`;
    const body = await readBody(request, (count) => {
      this.bytes += count;
      return this.bytes <= MOST_BYTES;
    });
    const size = body.size;
    const forget = (): void => {
      this.bytes -= size;
      const call = this.calls.get(id);
      this.calls.delete(id);
      if (!call?.told || response.writableFinished) return;
      this.gone.push(id);
      this.happened();
    };
    if (response.destroyed || request.socket.destroyed) return forget();
    response.once('close', forget);
    if ('refusal' in body) return refuse(request, response, body.refusal);
    if (this.calls.size >= MOST_CALLS) return refuse(request, response, BUSY);
    this.calls.set(id, { id, body: body.text, response, told: false });
    this.happened();
  }
}

const NOT_FOUND = 'there are POST /v1/chat/completions and GET /v1/models';
const BUSY: Refusal = {
  status: 429,
  code: 'rate_limit_exceeded',
  message: `no more than ${MOST_CALLS} calls may wait at once`,
};
