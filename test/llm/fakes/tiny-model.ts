import type { Candidate } from '../../../activities/llm/sampling.ts';
import { drawAt, sampledDistribution } from '../../../activities/llm/sampling.ts';

/** Tokens of a model whose whole distribution fits on a page; token 2 ends a turn. */
export const VOCABULARY = 12;
export const END = 2;

/** The model's own distribution after a token, at temperature 1. */
export function distributionAfter(token: number): Candidate[] {
  const logits = Array.from({ length: VOCABULARY }, (_, id) => ((token * 7 + id * 5) % 11) / 3);
  const sum = Math.log(logits.reduce((total, logit) => total + Math.exp(logit), 0));
  return logits.map((logit, id) => ({ id, logprob: logit - sum }));
}

export interface TinySampling {
  readonly temperature: number;
  readonly topP: number;
  readonly maxTokens: number;
  readonly seed: number;
  readonly stopIds: readonly number[];
}

/** A sampled token: its log-probability in the distribution that was sampled from, and in the model's own. */
export interface TinyToken {
  readonly id: number;
  readonly logprob: number;
  readonly raw: number;
}

/** A turn as the model samples it, always the same for the same seed. */
export function sampleTurn(prompt: readonly number[], sampling: TinySampling): TinyToken[] {
  const turn: TinyToken[] = [];
  let last = prompt.at(-1) ?? 0;
  while (turn.length < sampling.maxTokens) {
    const own = distributionAfter(last);
    // A number in [0, 1) of the seed and the position.
    const u = Math.abs(Math.sin((sampling.seed + 1) * 12.9898 + turn.length * 78.233) * 43_758.5453) % 1;
    const drawn = drawAt(sampledDistribution(own, sampling), u) as Candidate;
    const raw = own.find(({ id }) => id === drawn.id)?.logprob ?? Number.NaN;
    turn.push({ id: drawn.id, logprob: sampling.temperature === 0 ? raw : drawn.logprob, raw });
    last = drawn.id;
    if (last === END || sampling.stopIds.includes(last)) break;
  }
  return turn;
}
