import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { readTokenizerFolder } from '../activities/llm/tokenizer-folder.ts';
import { PROJECT_ROOT } from '../config/tools.ts';
import type { LlmServer } from '../contracts/llm.ts';
import { tokenizerFolder } from '../test/support/tokenizer-folders.ts';

/** How the server answers. */
export interface TokenServerOptions {
  /** What it says, turn after turn. */
  readonly answer: string;
  /** Milliseconds from a request to its first token, and between two. */
  readonly firstMs: number;
  readonly tokenMs: number;
}

/** A running one. */
export interface TokenServer {
  /** As a pool is told of it, with the folder of SmolLM2's tokenizer. */
  readonly entry: LlmServer & { readonly tokenizer: string };
  /**
   * Requests so far: the first token of the prompt, and milliseconds from the arrival of its head to the end of
   * the answer: what sending the prompt takes is in it.
   */
  times(): Promise<[first: number, ms: number][]>;
  close(): Promise<void>;
}

/**
 * A server without a model in a process of its own, behind vLLM's token-level wire (`/inference/v1/generate` of 0.32, as
 * recorded): it takes no time but what it is told to, so that what is around it shows.
 */
export async function startTokenServer(options: TokenServerOptions): Promise<TokenServer> {
  const scratch = await mkdtemp(path.join(os.tmpdir(), 'bench-tokenizer-'));
  const tokenizer = await tokenizerFolder('smollm2', scratch);
  const argv = ['--import', 'tsx', fileURLToPath(import.meta.url), JSON.stringify({ ...options, tokenizer })];
  const child = spawn(process.execPath, argv, { cwd: PROJECT_ROOT, stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  const url = `http://127.0.0.1:${Number(line.toString())}`;
  return {
    entry: { url, dialect: 'vllm', policyVersion: 0, tokenizer },
    times: async () => (await (await fetch(`${url}/times`)).json()) as [number, number][],
    close: async () => {
      child.stdin.end();
      await once(child, 'exit');
      await rm(scratch, { recursive: true });
    },
  };
}

/** An event of vLLM's token-level stream. */
export function tokensEvent(ids: readonly number[], last: boolean): string {
  const logprobs = { content: ids.map((id) => ({ token_id: id, logprob: -0.5 })) };
  const choice = { index: 0, token_ids: ids, logprobs, finish_reason: last ? 'stop' : null };
  return `data: ${JSON.stringify({ choices: [choice] })}\n\n`;
}

/** The child: serves until its input ends. */
async function main(options: TokenServerOptions & { tokenizer: string }): Promise<void> {
  const { tokenizer, answer, firstMs, tokenMs } = options;
  const { codec, format } = await readTokenizerFolder(tokenizer);
  const signal = new AbortController().signal;
  const encode = (text: string) => codec.tokenize(text, { parseSpecial: true }, signal);
  const turn = await encode(answer + format.eosText);
  const times: [number, number][] = [];
  const events = turn.map((id, at) => tokensEvent([id], at === turn.length - 1));
  const server = http.createServer(async (request, response) => {
    const started = performance.now();
    let body = '';
    for await (const chunk of request) body += chunk;
    const { url = '' } = request;
    const tell = (value: unknown) => response.end(JSON.stringify(value));
    if (url === '/v1/models') return tell({ data: [{ id: 'none', max_model_len: 1 << 20 }] });
    if (url === '/times') return tell(times);
    if (url === '/metrics') return response.end();
    if (url === '/tokenize') return tell({ tokens: await encode(JSON.parse(body).prompt) });
    const first = Number(/"token_ids":\[([0-9]+)/.exec(body)?.[1]);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.flushHeaders();
    for (const [at, event] of events.entries()) {
      await new Promise((resolve) => setTimeout(resolve, at === 0 ? firstMs : tokenMs));
      response.write(event);
    }
    response.end('data: [DONE]\n\n');
    times.push([first, performance.now() - started]);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  process.stdout.write(`${(server.address() as AddressInfo).port}\n`);
  process.stdin.resume();
  await once(process.stdin, 'end');
  process.exit(0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(JSON.parse(process.argv[2] as string));
