import { RolloutError } from '../../contracts/failures.ts';
import type { Policy } from '../agent/agent.ts';
import type { Judge } from '../handlers/handler.ts';

/** Label of the servers that judge; they may be of another model or precision than the policy's. */
export const JUDGE_LABEL = 'judge';
/** Tokens of a verdict with its reason. */
const MOST_TOKENS = 512;

/** Gives out servers of a label. */
export interface LabelledServers {
  open(
    name: string,
    options: { readonly signal: AbortSignal; readonly label: string },
  ): Promise<Policy & { close(): void }>;
}

/** A judge on the servers of a pool that are labelled for it. It samples at temperature 0. */
export function judgeOn(servers: LabelledServers, name: string): Judge {
  return {
    ask: async (messages, signal) => {
      const model = await servers.open(`${name} judge`, { signal, label: JUDGE_LABEL });
      try {
        let ids: number[] = [];
        const prompt = await model.renderPrompt(messages);
        // A server that swaps its weights breaks a request off; what came is kept.
        for (;;) {
          const maxTokens = MOST_TOKENS - ids.length;
          const request = { promptIds: [...prompt, ...ids], maxTokens, temperature: 0, topP: 1 };
          const sampled = await model.generate(request, signal);
          signal.throwIfAborted();
          ids = [...ids, ...sampled.ids];
          if (sampled.finish !== 'abort' || ids.length >= MOST_TOKENS) break;
        }
        return await model.text(ids);
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof RolloutError)) throw error;
        throw new RolloutError('GraderFailed', `the judge model: ${error.message}`, { cause: error });
      } finally {
        model.close();
      }
    },
  };
}
