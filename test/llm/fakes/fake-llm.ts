import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { answerers, type FakeKind } from './answers.ts';
import { sampleTurn, type TinyToken } from './tiny-model.ts';

/** How a fake misbehaves, which a real server cannot be made to do. */
export interface FakeOptions {
  /** Log-probabilities are the model's own, whatever was sampled from. */
  readonly raw?: boolean;
  /** Changes the log-probabilities of one event. */
  readonly spoil?: (logprobs: (number | null)[]) => unknown[] | null;
  /** Changes one event; `last` for the one that ends the turn. */
  readonly alter?: (event: Record<string, unknown>, last: boolean) => unknown;
  /** Sends nothing more after so many tokens, and keeps the connection. */
  readonly standAfter?: number;
  /** Closes the connection after so many tokens. */
  readonly cutAfter?: number;
  /** Ends every request as one that the server itself broke off, before a token. */
  readonly breakOff?: boolean;
  /** Refuses to generate with a status and words. */
  readonly refuse?: { readonly status: number; readonly words: string };
  /** Refuses requests beyond so many at once, with status 429. */
  readonly refuseBeyond?: number;
  /** Waited for before a request gets its first token. */
  readonly beforeTokens?: () => Promise<void>;
  /** Scores a prompt's tokens as other weights would: each less likely by so many nats. */
  readonly otherBy?: number;
  /** Name of its model; `tiny` if it is left out. */
  readonly model?: string;
  /** Text that this tokenizer encodes otherwise than real ones would. */
  readonly encode?: (text: string) => number[];
}

/** A request as the fake got it. */
export interface SeenRequest {
  readonly path: string;
  readonly body: Record<string, unknown>;
}

/** An LLM server with the tiny model behind the wire format of one kind of server. */
export interface FakeLlm {
  readonly url: string;
  readonly seen: SeenRequest[];
  /** Requests that were refused because there were too many. */
  readonly refused: number;
  /** Resolves when a caller closes its connection before the answer has ended. */
  readonly left: Promise<void>;
  /** Ends all connections, as one does that is started again. */
  endConnections(): void;
  close(): Promise<void>;
}

export async function fakeLlm(kind: FakeKind, options: FakeOptions = {}): Promise<FakeLlm> {
  const seen: SeenRequest[] = [];
  let leave = () => {};
  const left = new Promise<void>((resolve) => {
    leave = resolve;
  });
  let open = 0;
  let refused = 0;
  const server = http.createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const path = request.url ?? '';
    const body = text === '' ? {} : (JSON.parse(text) as Record<string, unknown>);
    seen.push({ path, body });
    response.on('close', () => {
      if (!response.writableFinished) leave();
    });
    const answerer = answerers[kind];
    const told = answerer.tell(path, body, options);
    if (told !== undefined) {
      response.writeHead(told.status ?? 200, { 'content-type': 'application/json' });
      response.end(typeof told.body === 'string' ? told.body : JSON.stringify(told.body));
      return;
    }
    const asked = answerer.asked(path, body);
    if (!asked) {
      response.writeHead(404).end(JSON.stringify({ detail: 'Not Found' }));
      return;
    }
    if (options.refuse) {
      const { status, words } = options.refuse;
      response.writeHead(status).end(JSON.stringify({ error: { message: words, code: status } }));
      return;
    }
    if (options.refuseBeyond !== undefined && open >= options.refuseBeyond) {
      refused++;
      response.writeHead(429).end(JSON.stringify({ error: { message: 'too many', code: 429 } }));
      return;
    }
    open++;
    response.once('close', () => open--);
    await options.beforeTokens?.();
    if (options.breakOff) {
      const choice = { token_ids: [], finish_reason: 'abort' };
      response.end(`data: ${JSON.stringify({ choices: [choice] })}\n\ndata: [DONE]\n\n`);
      return;
    }
    const turn = sampleTurn(asked.prompt, asked);
    const sent: TinyToken[] = [];
    response.writeHead(200, { 'content-type': answerer.streams ? 'text/event-stream' : 'application/json' });
    response.flushHeaders();
    if (!answerer.streams) {
      if (options.standAfter === undefined) response.end(JSON.stringify(answerer.whole?.(turn, options)));
      return;
    }
    for (const [at, token] of turn.entries()) {
      if (sent.length === options.standAfter) return;
      if (sent.length === options.cutAfter) {
        response.destroy();
        return;
      }
      const finish = at < turn.length - 1 ? null : asked.ends(token.id) ? 'stop' : 'length';
      sent.push(token);
      const event = answerer.event(path, sent, finish, options) as Record<string, unknown>;
      const altered = options.alter?.(event, finish !== null) ?? event;
      response.write(`data: ${JSON.stringify(altered)}\n\n`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    response.end('data: [DONE]\n\n');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return {
    url: `http://127.0.0.1:${port}`,
    seen,
    left,
    endConnections: () => server.closeAllConnections(),
    close,
    get refused() {
      return refused;
    },
  };
}
