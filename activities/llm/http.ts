import { setMaxListeners } from 'node:events';
import { Agent, type Dispatcher, request } from 'undici';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { ErrorEvent } from './wire.ts';

/** Bounds on a server's silence, in milliseconds: a hung server is left after one of them. */
export interface HttpTimeouts {
  readonly connectMs: number;
  /** From the request to the first byte or token: waiting for a slot and reading the prompt included. */
  readonly firstByteMs: number;
  /** Between two tokens of a stream, or two parts of any other answer. */
  readonly idleMs: number;
}

const IDLE_CONNECTION_MS = 1_000;
const STREAM = 'text/event-stream';
/** What it is called when the other side closes a connection. */
const CLOSED = ['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'];
/** How long a server may take to end its answer after the last event of interest. */
const LAST_MS = 100;

/** The bounds that the configuration sets (`llm.firstByteSeconds`, `llm.idleSeconds`). */
export function timeoutsOf(llm: {
  readonly firstByteSeconds: number;
  readonly idleSeconds: number;
}): Pick<HttpTimeouts, 'firstByteMs' | 'idleMs'> {
  return { firstByteMs: llm.firstByteSeconds * 1000, idleMs: llm.idleSeconds * 1000 };
}

export const DEFAULT_TIMEOUTS: HttpTimeouts = { connectMs: 10_000, firstByteMs: 60_000, idleMs: 60_000 };

/**
 * A signal that any number of requests may listen to: a rollout's signal stands for all that it has under
 * way at once, so Node's warning of a leak at 11 listeners means nothing here.
 */
function shared(signal: AbortSignal): AbortSignal {
  setMaxListeners(0, signal);
  return signal;
}

/** JSON over HTTP to one LLM server, every failure typed. */
export class LlmHttp {
  readonly url: string;
  /** Connections opened so far. */
  connections = 0;
  readonly #timeouts: HttpTimeouts;
  readonly #agent: Agent;

  constructor(url: string, timeouts: Partial<HttpTimeouts> = {}) {
    this.url = url.replace(/\/+$/, '');
    this.#timeouts = { ...DEFAULT_TIMEOUTS, ...timeouts };
    this.#agent = new Agent({
      // The next turn often comes at once, and opening a connection takes longer than all else that a request costs
      // here. llama.cpp and uvicorn close idle ones after 5 s: ours are closed long before.
      keepAliveTimeout: IDLE_CONNECTION_MS,
      keepAliveMaxTimeout: IDLE_CONNECTION_MS,
      connect: { timeout: this.#timeouts.connectMs },
      // Streams are timed by their tokens: a server's keep-alive comments are no progress.
      bodyTimeout: 0,
      headersTimeout: this.#timeouts.firstByteMs,
    });
    this.#agent.on('connect', () => this.connections++);
  }

  /** The parsed JSON of an answer. Without a `body` the request is a GET. */
  async json(path: string, body: unknown, signal: AbortSignal): Promise<unknown> {
    const where = `${this.url}${path}`;
    const answer = parseJson(where, await this.text(path, body, signal));
    refuseError(where, answer);
    return answer;
  }

  /** The text of an answer. Without a `body` the request is a GET. */
  async text(path: string, body: unknown, signal: AbortSignal): Promise<string> {
    signal.throwIfAborted();
    try {
      const response = await this.#send(path, body, shared(signal), this.#timeouts.idleMs);
      const text = await response.body.text();
      refuseStatus(`${this.url}${path}`, response.statusCode, text);
      return text;
    } catch (error) {
      signal.throwIfAborted();
      throw this.#unreachable(path, error);
    }
  }

  /** Returns when the server answers at all, whatever it says. */
  async reach(path: string, signal: AbortSignal): Promise<void> {
    try {
      await this.text(path, undefined, signal);
    } catch (error) {
      if (!(error instanceof HttpRefused)) throw error;
    }
  }

  /**
   * The `data:` events of a server-sent event stream, parsed. Ends when the server ends the stream; leaving
   * the loop or aborting the signal closes the connection, which is how the server learns of it.
   * @throws RolloutError LlmInvalidAnswer, with the server's words, for an answer that is no such stream
   */
  async *events(path: string, body: unknown, signal: AbortSignal): AsyncGenerator<unknown> {
    signal.throwIfAborted();
    const where = `${this.url}${path}`;
    const idle = new AbortController();
    const abort = () => idle.abort(signal.reason);
    shared(signal).addEventListener('abort', abort, { once: true });
    let timer: NodeJS.Timeout | undefined;
    const { firstByteMs, idleMs } = this.#timeouts;
    let rest: Dispatcher.ResponseData['body'] | undefined;
    const leaveAfter = (ms: number) => {
      const what = `${where} sent no token for ${ms} ms`;
      clearTimeout(timer);
      timer = setTimeout(() => idle.abort(new RolloutError('LlmUnreachable', what)), ms);
    };
    try {
      const response = await this.#send(path, body, idle.signal, 0);
      const type = String(response.headers['content-type'] ?? STREAM);
      if (response.statusCode !== 200 || !type.startsWith(STREAM)) {
        leaveAfter(idleMs);
        const text = await response.body.text();
        refuseStatus(where, response.statusCode, text);
        // Errors may come with status 200, from proxies above all.
        if (type.includes('json')) refuseError(where, parseJson(where, text));
        const what = `${where} answered ${type} in place of a stream: ${wordsOf(text)}`;
        throw new RolloutError('LlmInvalidAnswer', what);
      }
      // Some servers begin their answer at once and let the request wait its turn then.
      leaveAfter(firstByteMs);
      let begun = false;
      rest = response.body;
      for await (const line of lines(rest.iterator({ destroyOnReturn: false }))) {
        if (!line.startsWith('data:')) {
          if (line.startsWith('error:')) yield { error: parseJson(where, line.slice(6)) };
          continue;
        }
        if (begun) timer?.refresh();
        else leaveAfter(idleMs);
        begun = true;
        const data = line.slice(5).trim();
        if (data !== '[DONE]') yield parseJson(where, data);
      }
    } catch (error) {
      signal.throwIfAborted();
      throw this.#unreachable(path, error);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      if (signal.aborted || idle.signal.aborted || !rest) idle.abort();
      else leave(rest);
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  /** Sends a request; once more where the server closed the connection before it answered: a kept one may be stale. */
  async #send(
    path: string,
    body: unknown,
    signal: AbortSignal,
    bodyTimeout: number,
  ): Promise<Dispatcher.ResponseData> {
    const send = () =>
      request(`${this.url}${path}`, {
        dispatcher: this.#agent,
        method: body === undefined ? 'GET' : 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
        body: text,
        signal,
        bodyTimeout,
      });
    const text = body === undefined ? null : JSON.stringify(body);
    try {
      return await send();
    } catch (error) {
      if (signal.aborted || !CLOSED.includes((error as { code?: string }).code ?? '')) throw error;
      return send();
    }
  }

  #unreachable(path: string, error: unknown): RolloutError {
    if (error instanceof RolloutError) return error;
    const code = (error as { code?: unknown }).code;
    const reason =
      code === undefined ? messageOf(error) : `${messageOf(error) || 'failed'} (${String(code)})`;
    return new RolloutError('LlmUnreachable', `${this.url}${path}: ${reason}`, { cause: error });
  }
}

/** Throws for an answer that is not 200, with the server's words. */
function refuseStatus(where: string, status: number, text: string): void {
  if (status === 200) return;
  refuse(where, status, wordsOf(text));
}

/** Throws for an answer that is an error whatever its status says, with the server's words. */
function refuseError(where: string, answer: unknown): void {
  const failed = ErrorEvent.safeParse(answer).data;
  if (failed) refuse(where, failed.error.code, failed.error.message);
}

/** An answer that is a refusal, with its HTTP status. */
export class HttpRefused extends RolloutError {
  readonly status: number;

  constructor(where: string, status: number, words: string) {
    // 408 and 429 mean "later", as does anything that went wrong inside the server.
    const later = status >= 500 || status === 408 || status === 429;
    super(later ? 'LlmUnreachable' : 'LlmRejected', `${where} answered ${status}: ${words}`);
    this.status = status;
  }
}

/** Throws the failure that an HTTP status (or the code within an error event) stands for. */
export function refuse(where: string, status: number, words: string): never {
  throw new HttpRefused(where, status, words);
}

function wordsOf(text: string): string {
  try {
    const body = JSON.parse(text) as Record<'error' | 'message' | 'detail', unknown>;
    const inner = (body.error as { message?: unknown } | undefined)?.message;
    const words = [body.error, inner, body.message, body.detail].find((value) => typeof value === 'string');
    if (words !== undefined) return words as string;
  } catch {
    // Not JSON: the text itself is what the server said.
  }
  return text.trim().slice(0, 500) || '(no text)';
}

function parseJson(where: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const message = `${where} answered something that is no JSON: ${text.slice(0, 200)}`;
    throw new RolloutError('LlmInvalidAnswer', message, { cause: error });
  }
}

/**
 * Takes in what little may follow the last event of interest (usage, `[DONE]`), so that its connection can carry the
 * next request; a server that has more to say than that is left.
 */
function leave(body: Dispatcher.ResponseData['body']): void {
  if (body.closed) return;
  const timer = setTimeout(() => body.destroy(), LAST_MS);
  body.once('close', () => clearTimeout(timer));
  body.on('error', () => {}); // nobody waits for it any more
  body.resume();
}

async function* lines(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of body) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = parts.pop() ?? '';
    yield* parts;
  }
  // A stream that stops within a line was cut: the missing final event tells the reader.
}

/** Reads gauges from metrics in Prometheus' text form: the sum over all labels, 0 for one that isn't there. */
export function gauges(text: string): (name: string) => number {
  const lines = text.split('\n');
  return (name) =>
    lines
      .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
      .reduce((sum, line) => sum + (Number(line.slice(line.lastIndexOf(' '))) || 0), 0);
}
