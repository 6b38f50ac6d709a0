import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { PROBE } from '../../activities/llm/identity.ts';
import { readTokenizerFolder, type TokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';

const NEVER = new AbortController().signal;
/** Milliseconds between two tokens. */
const PACE_MS = 15;
/** Tokens of a turn that say by what version they were sampled. */
const FILLER = 24;

/** A request for tokens: the version of the weights when its first token was sampled, and its place among all. */
export interface Begun {
  readonly version: number;
  readonly url: string;
}

/** What servers of one test share: the tokenizer's folder, the order of all requests, and when agents finish. */
export interface World {
  readonly folder: string;
  readonly tokenizer: TokenizerFolder;
  readonly begun: Begun[];
  /** Agents call no tool any more from now on. */
  finishing: boolean;
}

export async function makeWorld(folder: string): Promise<World> {
  return { folder, tokenizer: await readTokenizerFolder(folder), begun: [], finishing: false };
}

/**
 * A server with vLLM's wire format (as recorded from version 0.32; see test/llm/fakes/answers.ts) and its weight
 * update, whose tokens say which version sampled them: a real one cannot be asked that. It plays an agent that calls
 * its shell until the world is finishing. It stands in for the many GPUs that a swap is for; `npm run test:vllm` swaps
 * a real one.
 */
export class VersionedServer {
  /** Requests under way. */
  open = 0;
  /** Loading fails with these words. */
  broken: string | undefined;
  /** What it calls its model. */
  model = 'versioned';
  /** Its tokenizer is another than the folder's. */
  encodesOtherwise = false;
  version: number;
  readonly #world: World;
  readonly #digits: number[];
  readonly #head: number[];
  readonly #tail: number[];
  readonly #done: number[];
  readonly #close: number;
  readonly #opening: number[];
  readonly #probes: Map<string, number[]>;
  readonly #server: http.Server;
  #name: string;
  #pause: 'abort' | 'keep' | null = null;
  #loaded: number | undefined;

  private constructor(world: World, parts: Parts, version: number) {
    this.#world = world;
    this.version = version;
    this.#name = version === 0 ? 'default' : String(version);
    this.#digits = parts.digits;
    this.#head = parts.head;
    this.#tail = parts.tail;
    this.#done = parts.done;
    this.#close = parts.close;
    this.#opening = parts.opening;
    this.#probes = parts.probes;
    this.#server = http.createServer((request, response) => void this.#answer(request, response));
  }

  static async start(world: World, version: number, port = 0): Promise<VersionedServer> {
    const server = new VersionedServer(world, await partsOf(world.tokenizer), version);
    await new Promise<void>((resolve) => server.#server.listen(port, '127.0.0.1', resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    let text = '';
    for await (const chunk of request) text += chunk;
    const body = text === '' ? {} : JSON.parse(text);
    const path = request.url ?? '';
    const say = (value: unknown, status = 200) => response.writeHead(status).end(JSON.stringify(value));
    switch (path) {
      case '/inference/v1/generate':
        return this.#generate(body, response);
      case '/tokenize':
        return void say({ tokens: this.encodesOtherwise ? [7] : (this.#probes.get(body.prompt) ?? []) });
      case '/v1/models':
        return void say({ object: 'list', data: [{ id: this.model, max_model_len: 100_000 }] });
      case '/weight_info':
        return void say({ weight_version: this.#name });
      case '/pause?mode=abort':
      case '/pause?mode=keep':
        this.#pause = path.endsWith('abort') ? 'abort' : 'keep';
        return void say({ status: 'paused' });
      case '/resume':
        this.#pause = null;
        return void say({ status: 'resumed' });
      case '/collective_rpc':
        if (this.broken) return void say({ error: { message: this.broken, code: 400 } }, 400);
        this.#loaded = Number(body.kwargs.weights_path.match(/\d+$/)[0]);
        return void say({ results: [null] });
      case '/update_weight_version':
        this.version = this.#loaded as number;
        this.#name = body.new_version;
        return void say({ success: true });
      case '/reset_prefix_cache':
        return void say({ success: true });
      default:
        return void say(
          path === '/health' || path === '/metrics' ? '' : { detail: 'Not Found' },
          path === '/health' || path === '/metrics' ? 200 : 404,
        );
    }
  }

  async #generate(
    body: { token_ids: number[]; sampling_params: { max_tokens: number } },
    response: http.ServerResponse,
  ): Promise<void> {
    let left = false;
    response.once('close', () => {
      left = true;
    });
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.flushHeaders();
    while (this.#pause && !left) await delay(PACE_MS);
    if (left) return;
    this.open++;
    this.#world.begun.push({ version: this.version, url: this.url });
    const spans: { version: string; start: number; end: number }[] = [];
    const send = (ids: number[], finish: string | null) => {
      const content = ids.map((id) => ({ token_id: id, logprob: -0.5, rank: 1 }));
      const choice = {
        index: 0,
        token_ids: ids,
        finish_reason: finish,
        weight_versions: finish && spans,
        logprobs: { content },
      };
      response.write(`data: ${JSON.stringify({ choices: [choice] })}\n\n`);
    };
    let sent = 0;
    let said = this.#saidIn(body.token_ids);
    for (let finish: string | null = null; !finish && !left; ) {
      while (this.#pause === 'keep' && !left) await delay(PACE_MS);
      if (this.#pause === 'abort') {
        send([], 'abort');
        break;
      }
      const id = this.#token(said);
      const last = spans.at(-1);
      if (last?.version === this.#name) last.end++;
      else spans.push({ version: this.#name, start: sent, end: sent + 1 });
      said = [...said, id];
      finish = id === this.#close ? 'stop' : ++sent >= body.sampling_params.max_tokens ? 'length' : null;
      send([id], finish);
      await delay(PACE_MS);
    }
    this.open--;
    response.end('data: [DONE]\n\n');
  }

  /** What the turn has so far: all after the last generation prompt, `<|im_start|>assistant\n`. */
  #saidIn(prompt: readonly number[]): number[] {
    const [first, ...rest] = this.#opening;
    return prompt.slice(prompt.lastIndexOf(first as number) + 1 + rest.length);
  }

  /** The token after these: a shell's block whose comment is of digits of the version, or the last word. */
  #token(said: readonly number[]): number {
    const at = said.length;
    const ends = at === 0 ? this.#world.finishing : said[0] === this.#done[0];
    if (ends) return this.#done[at] ?? this.#close;
    if (at < this.#head.length) return this.#head[at] as number;
    if (at < this.#head.length + FILLER) return this.#digits[this.version] as number;
    return this.#tail[at - this.#head.length - FILLER] ?? this.#close;
  }
}

/** What the servers say, in tokens. */
interface Parts {
  readonly digits: number[];
  readonly head: number[];
  readonly tail: number[];
  readonly done: number[];
  readonly close: number;
  readonly opening: number[];
  readonly probes: Map<string, number[]>;
}

async function partsOf({ codec }: TokenizerFolder): Promise<Parts> {
  const plain = (text: string) => codec.tokenize(text, { parseSpecial: false }, NEVER);
  const special = (text: string) => codec.tokenize(text, { parseSpecial: true }, NEVER);
  const digits: number[] = [];
  for (let digit = 0; digit < 10; digit++) digits.push(...(await plain(String(digit))));
  const probes = new Map<string, number[]>();
  for (const text of PROBE) probes.set(text, await special(text));
  return {
    digits,
    head: await plain('```bash\n# '),
    tail: await plain('\ntrue\n```'),
    done: await plain('Done'),
    close: (await special('<|im_end|>'))[0] as number,
    opening: await special('<|im_start|>assistant\n'),
    probes,
  };
}

/** The policy version that a sampled token says it is of; undefined for those that say nothing. */
export async function versionsByToken({ codec }: TokenizerFolder): Promise<Map<number, number>> {
  const versions = new Map<number, number>();
  for (let digit = 0; digit < 10; digit++) {
    const [id] = await codec.tokenize(String(digit), { parseSpecial: false }, NEVER);
    versions.set(id as number, digit);
  }
  return versions;
}
