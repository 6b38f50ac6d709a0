import path from 'node:path';
import { startEmbeddedLlm } from '../../activities/llm/embedded/server.ts';
import { loadTools } from '../../config/tools.ts';
import { startVllmServer } from '../../scripts/vllm/server.ts';
import { finish, start } from './children.ts';

/** Tokens of a request's context. */
const CONTEXT = 512;

/** What a run's first LLM server is started with. */
export interface FirstServer {
  readonly python: string;
  readonly vllm: string;
  readonly base: string;
  readonly folder: string;
  readonly weights: string;
  /** Policy version of these. */
  readonly version: number;
  readonly port: number;
}

/** A running one, and what the pool is told of it. */
export interface Served {
  readonly url: string;
  readonly entry: string;
  stop(): Promise<void>;
}

/** vLLM, which is told what version its weights are: the pool believes its word. */
export async function startVllm({
  vllm,
  base,
  folder,
  weights,
  version,
  port,
}: FirstServer): Promise<Served> {
  const flags = ['--enable-scale-out', '--logprobs-mode', 'processed_logprobs', '--tokenizer', base];
  const server = await startVllmServer({
    ...{ vllm, folder, flags, port, model: weights, context: CONTEXT, requests: 32 },
  });
  if (version > 0) await tellVersion(server.url, version);
  return { url: server.url, entry: `dialect = "vllm", tokenizer = "${base}"`, stop: server.stop };
}

/** llama.cpp in float32, whose file of the weights is made first. */
export async function startLlama({ python, folder, weights, port }: FirstServer): Promise<Served> {
  await finish(start(python, ['-m', 'trainer.gguf_file', loadTools().model, weights]), 'gguf_file');
  const server = await startEmbeddedLlm({
    ...{ python: loadTools().python, model: path.join(weights, 'model.gguf'), port, exact: true },
    ...{ contextTokens: CONTEXT, parallel: 8, logFile: path.join(folder, 'llama.log') },
  });
  return { url: server.url, entry: 'dialect = "llama.cpp"', stop: server.stop };
}

async function tellVersion(url: string, version: number): Promise<void> {
  const body = JSON.stringify({ new_version: String(version) });
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${url}/update_weight_version`, { method: 'POST', headers, body });
  if (!response.ok) throw new Error(`update_weight_version: ${response.status} ${await response.text()}`);
}
