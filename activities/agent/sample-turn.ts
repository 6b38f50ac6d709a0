import { RolloutError } from '../../contracts/failures.ts';
import type { LedgerSampled } from '../../contracts/ledger.ts';
import type { Sampling } from '../../contracts/request.ts';
import type { ToolCall } from '../../contracts/tools.ts';
import { recordedVersions } from '../trajectory/versions.ts';
import type { Policy } from './agent.ts';

/** One turn, or what is left of it. */
export interface TurnRequest {
  readonly policy: Policy;
  readonly sampling: Sampling;
  /** All tokens so far, those of `begun` included. */
  readonly promptIds: readonly number[];
  /** What earlier requests for this turn, which were broken off, have sampled. */
  readonly begun: readonly number[];
  /** Its number in its sequence. */
  readonly turn: number;
  /** Turns of the rollout before it, which its seed follows from. */
  readonly before: number;
  /** Most tokens that this request may sample. */
  readonly maxTokens: number;
  /** Reads the calls in the text of the whole turn. */
  readonly callsIn: (text: string) => ToolCall[];
  readonly signal: AbortSignal;
}

/**
 * Samples a turn until it ends or `signal` aborts, and makes its record; undefined if an abort came before a token.
 * @throws RolloutError LlmInvalidAnswer, and what the policy throws
 */
export async function sampleTurn(request: TurnRequest): Promise<LedgerSampled | undefined> {
  const { policy, sampling, promptIds, begun, turn, maxTokens } = request;
  const startedAt = new Date();
  const generated = await policy.generate(
    {
      promptIds,
      maxTokens,
      temperature: sampling.temperature,
      topP: sampling.topP,
      ...(sampling.seed === undefined ? {} : { seed: sampling.seed + request.before }),
    },
    request.signal,
  );
  if (generated.ids.length === 0) {
    if (generated.finish === 'abort') return undefined;
    throw new RolloutError('LlmInvalidAnswer', `${generated.server} returned no token`);
  }
  if (generated.ids.length > maxTokens) {
    const what = `${generated.server} returned ${generated.ids.length} tokens where ${maxTokens} were asked for`;
    throw new RolloutError('LlmInvalidAnswer', what);
  }
  const text = await policy.text([...begun, ...generated.ids]);
  // Broken off at its very last token, it has been cut by its length.
  const cut = generated.finish === 'abort' && generated.ids.length >= maxTokens;
  const finish = cut ? 'length' : generated.finish;
  return {
    kind: 'sampled',
    turn,
    promptLength: promptIds.length,
    ids: generated.ids,
    logprobs: generated.logprobs,
    ...recordedVersions(generated.versions),
    finish,
    text,
    calls: finish === 'abort' ? [] : request.callsIn(text),
    server: generated.server,
    startedAt: startedAt.toISOString(),
    ms: Date.now() - startedAt.getTime(),
  };
}
