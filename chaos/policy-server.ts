import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { type Reply, replyTo } from './policy.ts';
import { CHAT_TEMPLATE, decode, END_TEXT, encode, VOCABULARY_SIZE } from './tokens.ts';

/** Ways in which the server does not answer: a status, silence, or a connection cut in the middle of a stream. */
export type Refusal = 'error' | 'hang' | 'cut';

/** One request for tokens, as the server saw it. */
export interface Served {
  readonly task: string;
  readonly turn: number;
  readonly at: number;
  /** Tokens that left the server. */
  delivered: number;
  /** Null while it is under way. */
  end: 'complete' | 'closed' | Refusal | null;
  endedAt: number;
}

/** What comes after a prompt, and in which turn of which task that is. */
export type Replier = (promptIds: readonly number[]) => Pick<Reply, 'turn' | 'ids' | 'probabilities'> & {
  readonly task: { readonly name: string };
};

/** How fast tokens come: so many at a time, so many milliseconds apart. */
export interface Pace {
  readonly tokens: number;
  readonly ms: number;
}

/**
 * An LLM server that speaks llama.cpp's token protocol (as contracts of activities/llm/llama-cpp-wire.ts have
 * it) and plays a recorded policy. It keeps account of every request, and refuses in several ways when told.
 */
export class PolicyServer {
  readonly served: Served[] = [];
  pace: Pace = { tokens: 1000, ms: 0 };
  refusal: Refusal | null = null;
  private readonly server: http.Server;
  private readonly replyTo: Replier;

  private constructor(replyTo: Replier) {
    this.replyTo = replyTo;
    this.server = http.createServer((request, response) => {
      this.answer(request, response).catch((error: unknown) => {
        // Nobody's prompt: it shows as a rollout that the server rejected.
        if (!response.headersSent) json(response, 400, { error: { code: 400, message: String(error) } });
        else response.destroy();
      });
    });
  }

  /** `replier`: says what comes after a prompt; the policy of this suite's tasks if not given; `port`: any free one. */
  static async start(replier: Replier = replyTo, address = '127.0.0.1', port = 0): Promise<PolicyServer> {
    const policy = new PolicyServer(replier);
    policy.server.listen(port, address);
    await once(policy.server, 'listening');
    return policy;
  }

  get url(): string {
    const { address, port } = this.server.address() as AddressInfo;
    return `http://${address}:${port}`;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, 'close');
  }

  private async answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const body = await bodyOf(request);
    const path = request.url ?? '';
    if (path === '/completion') return this.complete(body, response);
    if (this.refusal === 'error')
      return json(response, 500, { error: { code: 500, message: 'told to fail' } });
    if (this.refusal === 'hang') return; // until the client leaves
    if (path === '/tokenize') {
      return json(response, 200, { tokens: encode(body.content as string, body.parse_special === true) });
    }
    if (path === '/detokenize') return json(response, 200, { content: decode(body.tokens as number[]) });
    const known = FIXED[path];
    json(response, known ? 200 : 404, known ?? { error: { code: 404, message: `no such call: ${path}` } });
  }

  private async complete(body: Record<string, unknown>, response: http.ServerResponse): Promise<void> {
    const { task, turn, ids, probabilities } = this.replyTo(body.prompt as number[]);
    const most = Math.min(ids.length, body.n_predict as number);
    const served: Served = { task: task.name, turn, at: Date.now(), delivered: 0, end: null, endedAt: 0 };
    this.served.push(served);
    const left = new AbortController();
    response.once('close', () => left.abort());
    const gone = once(left.signal, 'abort');
    const end = (how: Served['end']) => {
      served.end = how;
      served.endedAt = Date.now();
    };
    if (this.refusal === 'error') {
      end('error');
      return json(response, 500, { error: { code: 500, message: 'told to fail' } });
    }
    if (this.refusal !== 'hang') response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (let at = 0; at < most; ) {
      const { refusal } = this;
      if (refusal === 'hang') return void gone.then(() => end('hang'));
      if (refusal === 'cut' && at > 0) {
        end('cut');
        response.destroy();
        return;
      }
      const next = Math.min(most, at + this.pace.tokens);
      const tokens = ids.slice(at, next);
      event(response, {
        stop: false,
        tokens,
        tokens_predicted: next,
        completion_probabilities: tokens.map((id, index) => {
          const prob = probabilities[at + index] as number;
          return body.post_sampling_probs ? { id, prob } : { id, logprob: Math.log(prob) };
        }),
      });
      at = next;
      served.delivered = next;
      await delay(this.pace.ms, undefined, { signal: left.signal }).catch(() => {}); // it has left: see below
      if (left.signal.aborted) return end('closed');
    }
    event(response, { stop: true, stop_type: most < ids.length ? 'limit' : 'eos', tokens_predicted: most });
    end('complete');
    response.end();
  }
}

const FIXED: Record<string, unknown> = {
  '/health': { status: 'ok' },
  '/props': {
    model_alias: 'recorded',
    chat_template: CHAT_TEMPLATE,
    bos_token: '',
    eos_token: END_TEXT,
    default_generation_settings: { n_ctx: 100_000 },
  },
  '/v1/models': { data: [{ meta: { n_vocab: VOCABULARY_SIZE, n_params: 0, size: 0 } }] },
};

async function bodyOf(request: http.IncomingMessage): Promise<Record<string, unknown>> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += chunk;
  return text === '' ? {} : JSON.parse(text);
}

function json(response: http.ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}

function event(response: http.ServerResponse, value: unknown): void {
  response.write(`data: ${JSON.stringify(value)}\n\n`);
}
