import { z } from 'zod';
import type { ModelDescription } from './dialect.ts';
import type { LlmHttp } from './http.ts';
import { read } from './wire.ts';

/** GET /v1/models of servers that follow OpenAI; `max_model_len` is an addition of vLLM and SGLang. */
const ModelList = z.object({
  data: z.tuple([z.object({ id: z.string(), max_model_len: z.int().min(1).nullish() })]).rest(z.unknown()),
});

/** What /v1/models says of the first model, which is the one that requests are sent to. */
export async function describeFirstModel(http: LlmHttp, signal: AbortSignal): Promise<ModelDescription> {
  const answer = await http.json('/v1/models', undefined, signal);
  const [model] = read(ModelList, answer, `${http.url}/v1/models`).data;
  return {
    model: model.id,
    contextTokens: model.max_model_len ?? null,
    vocabularySize: null,
    parameterCount: null,
    fileBytes: null,
    format: null,
  };
}
