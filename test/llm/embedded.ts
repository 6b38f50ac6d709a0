import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { startEmbeddedLlm } from '../../activities/llm/embedded/server.ts';
import { LlamaCppDialect } from '../../activities/llm/llama-cpp.ts';
import { loadTools } from '../../config/tools.ts';

/** A signal that is never aborted. */
export const NEVER = new AbortController().signal;

/** The real server with the real model, and what speaks to it. */
export async function embedded({
  contextTokens = 2048,
  parallel = 2,
  model = loadTools().model,
}: {
  contextTokens?: number;
  parallel?: number;
  model?: string;
} = {}) {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'rollouts-llm-'));
  const { python } = loadTools();
  const logFile = path.join(folder, 'llm.log');
  const server = await startEmbeddedLlm({
    python,
    model,
    port: 0,
    contextTokens,
    parallel,
    threads: 2,
    logFile,
  });
  const dialect = new LlamaCppDialect(server.url);
  const close = async () => {
    await dialect.close();
    await server.stop();
    await rm(folder, { recursive: true });
  };
  return { server, dialect, close, folder };
}

/** Whether the server works on any request. */
export async function slotsBusy(url: string): Promise<boolean> {
  const slots = (await (await fetch(`${url}/slots`)).json()) as { is_processing: boolean }[];
  return slots.some((slot) => slot.is_processing);
}
