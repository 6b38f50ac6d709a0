/** One token of a distribution with its natural log-probability. */
export interface Candidate {
  readonly id: number;
  readonly logprob: number;
}

/**
 * The distribution that is sampled from: `candidates` (the model's own, at temperature 1, whole vocabulary)
 * under a temperature, then cut to the smallest set whose mass reaches `topP`, then normalised. Sorted from
 * the most probable. Temperature 0 leaves the most probable token alone.
 */
export function sampledDistribution(
  candidates: readonly Candidate[],
  { temperature, topP }: { temperature: number; topP: number },
): Candidate[] {
  const sorted = [...candidates].sort((a, b) => b.logprob - a.logprob);
  if (temperature === 0) return sorted.slice(0, 1).map(({ id }) => ({ id, logprob: 0 }));
  const scaled = normalised(sorted.map(({ id, logprob }) => ({ id, logprob: logprob / temperature })));
  if (topP >= 1) return scaled;
  let mass = 0;
  const nucleus: Candidate[] = [];
  for (const candidate of scaled) {
    nucleus.push(candidate);
    mass += Math.exp(candidate.logprob);
    if (mass >= topP) break;
  }
  return normalised(nucleus);
}

/** Log-probabilities shifted so that the probabilities add up to 1. */
export function normalised(candidates: readonly Candidate[]): Candidate[] {
  const highest = Math.max(...candidates.slice(0, 1).map(({ logprob }) => logprob), -Infinity);
  let sum = 0;
  for (const { logprob } of candidates) sum += Math.exp(logprob - highest);
  const log = highest + Math.log(sum);
  return candidates.map(({ id, logprob }) => ({ id, logprob: Math.min(0, logprob - log) }));
}

/** The candidate at point `u` (0 ≤ u < 1) of the cumulated, not necessarily normalised, distribution. */
export function drawAt(candidates: readonly Candidate[], u: number): Candidate | undefined {
  let total = 0;
  for (const { logprob } of candidates) total += Math.exp(logprob);
  let point = u * total;
  for (const candidate of candidates) {
    point -= Math.exp(candidate.logprob);
    if (point < 0) return candidate;
  }
  return candidates.at(-1);
}
