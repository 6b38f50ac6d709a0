import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { readTokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import { tokenizerFolder } from '../../test/support/tokenizer-folders.ts';
import { tokensEvent } from '../token-server.ts';
import { StagesTask } from './tasks.ts';

/** What the model says in a turn. */
interface Answer {
  readonly name: string;
  readonly ms: number;
  readonly ids: readonly number[];
}

/** From now on so many of the server's slots are in use, and so many requests wait for one. */
interface Occupancy {
  readonly at: number;
  readonly busy: number;
  readonly waiting: number;
}

/** Parts in which an answer is sent: a client may leave between them. */
const PARTS = 4;

/**
 * An LLM server that serves so many requests at once, the others in turn, behind vLLM's token-level wire. Each takes
 * what its task says, and the server remembers how busy it was.
 */
export class SlottedServer {
  readonly entry: LlmServer & { readonly tokenizer: string };
  /** When each task was first asked for, in the order of that; times are of `Date.now()`. */
  readonly firstAsked = new Map<string, number>();
  /** Milliseconds that each request waited for a slot. */
  readonly waits: { readonly at: number; readonly ms: number }[] = [];
  readonly #occupancy: Occupancy[] = [{ at: Date.now(), busy: 0, waiting: 0 }];
  readonly #queue: (() => void)[] = [];
  readonly #slots: number;
  readonly #server: http.Server;
  readonly #encode: (text: string) => Promise<number[]>;
  readonly #answer: (promptIds: readonly number[]) => Promise<Answer>;
  readonly #scratch: string;
  #busy = 0;

  static async start(slots: number): Promise<SlottedServer> {
    const scratch = await mkdtemp(path.join(os.tmpdir(), 'bench-tokenizer-'));
    const tokenizer = await tokenizerFolder('smollm2', scratch);
    const { codec, format } = await readTokenizerFolder(tokenizer);
    const never = new AbortController().signal;
    const encode = (text: string) => codec.tokenize(text, { parseSpecial: true }, never);
    const answer = async (promptIds: readonly number[]): Promise<Answer> => {
      const prompt = await codec.detokenize(promptIds, never);
      const stated = /Task (\{.*\})/.exec(prompt)?.[1];
      // The pool tries a server before it takes it.
      if (!stated) return { name: '', ms: 0, ids: await encode(`Yes.${format.eosText}`) };
      const task = StagesTask.parse(JSON.parse(stated));
      const turn = prompt.split('<|im_start|>assistant\n').length - 2;
      const { llmMs, toolMs } = task.turns[turn] as StagesTask['turns'][0];
      const isLast = turn === task.turns.length - 1;
      const words = isLast ? 'That is all.' : `\`\`\`bash\nsleep ${toolMs / 1000}\n\`\`\``;
      return { name: task.name, ms: llmMs, ids: await encode(words + format.eosText) };
    };
    const server = http.createServer((request, response) => slotted.#serve(request, response));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const slotted: SlottedServer = new SlottedServer(url, {
      slots,
      server,
      encode,
      answer,
      tokenizer,
      scratch,
    });
    return slotted;
  }

  private constructor(
    url: string,
    parts: {
      slots: number;
      server: http.Server;
      encode: (text: string) => Promise<number[]>;
      answer: (promptIds: readonly number[]) => Promise<Answer>;
      tokenizer: string;
      scratch: string;
    },
  ) {
    this.entry = { url, dialect: 'vllm', policyVersion: 7, tokenizer: parts.tokenizer };
    this.#slots = parts.slots;
    this.#server = parts.server;
    this.#encode = parts.encode;
    this.#answer = parts.answer;
    this.#scratch = parts.scratch;
  }

  /** When all slots were in use for the first time since then; undefined if they never were. */
  firstFull(since: number): number | undefined {
    return this.#occupancy.find(({ at, busy }) => at >= since && busy === this.#slots)?.at;
  }

  /** Means over a span of time: percent of the slots in use, and requests that waited for one. */
  usage(from: number, to: number): { busy_pct: number; waiting: number } {
    let [busy, waiting] = [0, 0];
    for (const [index, one] of this.#occupancy.entries()) {
      const until = this.#occupancy[index + 1]?.at ?? to;
      const ms = Math.max(0, Math.min(to, until) - Math.max(from, one.at));
      busy += ms * one.busy;
      waiting += ms * one.waiting;
    }
    return { busy_pct: (100 * busy) / (this.#slots * (to - from)), waiting: waiting / (to - from) };
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
    await rm(this.#scratch, { recursive: true });
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    let body = '';
    for await (const chunk of request) body += chunk;
    const { url = '' } = request;
    const tell = (value: unknown) => void response.end(JSON.stringify(value));
    if (url === '/health') return void response.end();
    if (url === '/v1/models') return tell({ data: [{ id: 'none', max_model_len: 1 << 20 }] });
    if (url === '/weight_info') return tell({ weight_version: '7' });
    if (url === '/tokenize') return tell({ tokens: await this.#encode(JSON.parse(body).prompt) });
    if (url === '/metrics') {
      const gauges = { num_requests_running: this.#busy, num_requests_waiting: this.#queue.length };
      return void response.end(
        Object.entries(gauges)
          .map(([name, value]) => `vllm:${name} ${value}\n`)
          .join(''),
      );
    }
    const { name, ms, ids } = await this.#answer(JSON.parse(body).token_ids);
    const asked = Date.now();
    if (!this.firstAsked.has(name)) this.firstAsked.set(name, asked);
    const left = new AbortController();
    response.once('close', () => left.abort());
    await this.#slot();
    this.waits.push({ at: asked, ms: Date.now() - asked });
    try {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const size = Math.ceil(ids.length / PARTS);
      for (let from = 0; from < ids.length; from += size) {
        await delay((ms * Math.min(size, ids.length - from)) / ids.length, null, { signal: left.signal });
        response.write(tokensEvent(ids.slice(from, from + size), from + size >= ids.length));
      }
      response.end('data: [DONE]\n\n');
    } catch (error) {
      if (!left.signal.aborted) throw error;
    } finally {
      this.#busy--;
      this.#queue.shift()?.();
      this.#note();
    }
  }

  /** Waits for one; they are given in the order of asking. */
  async #slot(): Promise<void> {
    if (this.#busy >= this.#slots) {
      const free = new Promise<void>((resolve) => this.#queue.push(resolve));
      this.#note();
      await free;
    }
    this.#busy++;
    this.#note();
  }

  #note(): void {
    this.#occupancy.push({ at: Date.now(), busy: this.#busy, waiting: this.#queue.length });
  }
}
