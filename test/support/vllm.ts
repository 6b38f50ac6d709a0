import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, symlink } from 'node:fs/promises';
import path from 'node:path';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { startVllmServer, type VllmServer } from '../../scripts/vllm/server.ts';
import { tokenizerFolder } from './tokenizer-folders.ts';

/** What `npm run test:vllm` brought. */
interface VllmTools {
  readonly vllm: string;
  /** Two checkpoints of one model. */
  readonly a: string;
  readonly b: string;
}

function loadVllmTools(): VllmTools {
  return JSON.parse(readFileSync(path.join(PROJECT_ROOT, '.rollouts', 'vllm.json'), 'utf8'));
}

/** A real vLLM server on the CPU with SmolLM2. */
export interface RealVllm extends VllmServer {
  /** The folder of the model with its tokenizer. */
  readonly model: string;
  /** Another checkpoint of it. */
  readonly other: string;
}

for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => process.exit(1));

/** Starts a server below `folder`; `flags` go to `vllm serve`. */
export async function startVllm(folder: string, flags: readonly string[]): Promise<RealVllm> {
  const { vllm, a, b } = loadVllmTools();
  const model = path.join(folder, 'model');
  await mkdir(model, { recursive: true });
  for (const name of ['config.json', 'generation_config.json', 'model.safetensors']) {
    if (existsSync(path.join(a, name)) && !existsSync(path.join(model, name))) {
      await symlink(path.join(a, name), path.join(model, name));
    }
  }
  await cp(await tokenizerFolder('smollm2', folder), model, { recursive: true });
  const server = await startVllmServer({ vllm, model, folder, flags, context: 512, requests: 8 });
  return { ...server, model, other: b };
}
