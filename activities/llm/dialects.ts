import type { LlmDialectName } from '../../contracts/llm.ts';
import type { LlmDialect } from './dialect.ts';
import type { HttpTimeouts } from './http.ts';
import { LlamaCppDialect } from './llama-cpp.ts';
import { ProRlDialect } from './prorl.ts';
import { SglangDialect } from './sglang.ts';
import { TensorRtLlmDialect } from './tensorrt-llm.ts';
import { VllmDialect } from './vllm.ts';

const DIALECTS = {
  'llama.cpp': LlamaCppDialect,
  vllm: VllmDialect,
  sglang: SglangDialect,
  'tensorrt-llm': TensorRtLlmDialect,
  prorl: ProRlDialect,
} as const satisfies Record<
  LlmDialectName,
  new (
    url: string,
    timeouts?: Partial<HttpTimeouts>,
  ) => LlmDialect
>;

/** What speaks to a server of a kind. */
export function makeDialect(
  name: LlmDialectName,
  url: string,
  timeouts: Partial<HttpTimeouts> = {},
): LlmDialect {
  return new DIALECTS[name](url, timeouts);
}
