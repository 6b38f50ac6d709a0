import { createReadStream } from 'node:fs';
import { access } from 'node:fs/promises';
import { byteLines } from '../../activities/byte-lines.ts';
import type { LlmDialect } from '../../activities/llm/dialect.ts';
import { makeDialect } from '../../activities/llm/dialects.ts';
import { timeoutsOf } from '../../activities/llm/http.ts';
import { type Model, openModel } from '../../activities/llm/model.ts';
import { openArchive } from '../../activities/trajectory/archive.ts';
import { ledgerProblems, proveLine, runsToScore } from '../../activities/trajectory/prove.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { Config } from '../../config/load.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import type { Output } from '../output.ts';

/** Options of `rollouts verify`. */
export interface VerifyOptions {
  /** Scores tokens again on the servers that are configured. */
  readonly rescore: boolean;
  /** Most tokens of one sequence to score again. */
  readonly tokens: number;
  /** Largest difference of log-probabilities that is no problem, in nats. */
  readonly tolerance?: number;
}

/** Something wrong in a file. */
interface Problem {
  readonly line: number;
  readonly rollout: string | null;
  readonly problem: string;
}

/** Recorded against re-scored log-probabilities, in nats. */
class Differences {
  tokens = 0;
  largest = 0;
  /** Where the largest was. */
  at: { readonly rollout: string; readonly position: number } | null = null;
  private sum = 0;

  note(difference: number, at: NonNullable<Differences['at']>): void {
    this.tokens++;
    this.sum += difference;
    if (difference < this.largest && this.at) return;
    this.largest = difference;
    this.at = at;
  }

  add(others: Differences): void {
    this.tokens += others.tokens;
    this.sum += others.sum;
    if (!others.at || (this.at && others.largest < this.largest)) return;
    this.largest = others.largest;
    this.at = others.at;
  }

  get told() {
    const { tokens, largest, at } = this;
    return { tokens, largest, mean: tokens === 0 ? 0 : this.sum / tokens, at };
  }
}

/** A server that scores, and how what it says differs. */
interface ScoringServer {
  readonly dialect: LlmDialect;
  readonly differences: Differences;
  /** Absent until it has been looked at. */
  model?: Model;
}

/** What scoring again has shown: of each sequence on the server that it fits best, and of all of them on each server. */
type Rescored = Differences['told'] & {
  readonly servers: readonly (Differences['told'] & { readonly server: string })[];
};

/**
 * `rollouts verify`: proves each line of a trajectory file, against its ledger where the store has it, and with
 * `rescore` against the servers that have the model.
 * @returns the exit code: 0 if nothing is wrong.
 */
export async function verifyCommand(
  config: Config,
  file: string,
  options: VerifyOptions,
  output: Output,
): Promise<number> {
  await access(file).catch((error: unknown) => {
    throw new RolloutError('InvalidRequest', `trajectory file: ${messageOf(error)}`, { cause: error });
  });
  const store = new TrajectoryStore(config.derived.storeFolder, openArchive(config.archive));
  const rescorer = options.rescore ? await Rescorer.open(config.llm) : undefined;
  const problems: Problem[] = [];
  const seen = new Set<string>();
  let [line, sequences, ledgers] = [0, 0, 0];
  try {
    for await (const bytes of byteLines(createReadStream(file))) {
      line++;
      const text = bytes.toString();
      if (text === '') continue;
      const { trajectory, problems: found } = proveLine(text);
      if (trajectory) {
        sequences++;
        const { rollout_id, workflow_run_id, attempt, sequence_index } = trajectory;
        const name = JSON.stringify([rollout_id, workflow_run_id, attempt, sequence_index]);
        if (seen.has(name)) found.push('is in the file twice');
        seen.add(name);
        const key = { rolloutId: rollout_id, workflowRunId: workflow_run_id, attempt };
        const records = await store.getLedger(key).catch((error: unknown) => {
          found.push(`its ledger: ${messageOf(error)}`);
          return undefined;
        });
        if (records) {
          ledgers++;
          found.push(...ledgerProblems(trajectory, records));
        }
        if (found.length === 0) found.push(...((await rescorer?.compare(trajectory, options.tokens)) ?? []));
      }
      const rollout = trajectory?.rollout_id ?? null;
      for (const problem of found) problems.push({ line, rollout, problem });
    }
  } finally {
    await rescorer?.close();
  }
  const { tolerance } = options;
  if (rescorer && tolerance !== undefined && rescorer.differences.largest > tolerance) {
    const { largest, at } = rescorer.differences;
    const problem = `log-probabilities differ by up to ${largest}, more than ${tolerance}`;
    problems.push({ line: 0, rollout: at?.rollout ?? null, problem });
  }
  const rescored = rescorer?.rescored;
  const result = { file, sequences, ledgers, problems, rescored: rescored ?? null };
  output.result(result, () => textOf(result));
  return problems.length === 0 ? 0 : 1;
}

/** Scores tokens again: on every server that is named, since a sequence may have been sampled from any of them. */
class Rescorer {
  /** Of each sequence on the server that it fits best. */
  readonly differences = new Differences();
  private readonly signal = new AbortController().signal;
  private readonly servers: readonly ScoringServer[];

  private constructor(servers: readonly ScoringServer[]) {
    this.servers = servers;
  }

  /** @throws RolloutError InvalidRequest without a server, LlmUnreachable, LlmUnsuitable */
  static async open(llm: Config['llm']): Promise<Rescorer> {
    const { servers } = llm;
    if (servers.length === 0)
      throw new RolloutError('InvalidRequest', 'no LLM server to score on: name one with --server');
    const rescorer = new Rescorer(
      servers.map(({ dialect, url }) => ({
        dialect: makeDialect(dialect, url, timeoutsOf(llm)),
        differences: new Differences(),
      })),
    );
    try {
      for (const [at, server] of rescorer.servers.entries()) {
        server.model = await openModel(servers[at] as LlmServer, server.dialect, rescorer.signal);
      }
    } catch (error) {
      await rescorer.close();
      throw error;
    }
    return rescorer;
  }

  /** All that is told of it. */
  get rescored(): Rescored {
    const servers = this.servers.map(({ dialect, differences }) => ({
      server: dialect.url,
      ...differences.told,
    }));
    return { ...this.differences.told, servers };
  }

  /** Adds a sequence's differences. @returns why no server can score it, if so. */
  async compare(trajectory: Trajectory, most: number): Promise<string[]> {
    const reasons: string[] = [];
    let best: Differences | undefined;
    for (const server of this.servers) {
      const found = await this.differencesOn(server, trajectory, most);
      if (typeof found === 'string') {
        reasons.push(found);
        continue;
      }
      server.differences.add(found);
      if (!best || found.largest < best.largest) best = found;
    }
    if (!best) return reasons;
    this.differences.add(best);
    return [];
  }

  /** The differences, or why there are none. */
  private async differencesOn(
    { dialect, model }: ScoringServer,
    trajectory: Trajectory,
    most: number,
  ): Promise<Differences | string> {
    const { identity, contextTokens } = model as Model;
    const { sampling, logprobs, rollout_id } = trajectory;
    if (identity.tokenizer_hash !== trajectory.model.tokenizer_hash) {
      return `was sampled from ${trajectory.model.name}, whose tokenizer is not that of ${dialect.url}`;
    }
    const found = new Differences();
    const before = trajectory.input_ids.length;
    const ids = [...trajectory.input_ids, ...trajectory.output_ids];
    for (const [start, end] of runsToScore(trajectory, most)) {
      // Scoring samples one token more, so the last of a full context can't be.
      const stop = Math.min(before + end, contextTokens - 1);
      const from = before + start;
      if (stop <= from) continue;
      const scores = await dialect.score(ids.slice(0, stop), from, sampling, this.signal);
      if (!scores) return `a ${dialect.name} server can't score what was sampled with these settings`;
      for (const [at, score] of scores.entries()) {
        const position = start + at;
        found.note(Math.abs(score - (logprobs[position] as number)), { rollout: rollout_id, position });
      }
    }
    return found;
  }

  async close(): Promise<void> {
    await Promise.all(this.servers.map(({ dialect }) => dialect.close()));
  }
}

function textOf(result: {
  readonly file: string;
  readonly sequences: number;
  readonly ledgers: number;
  readonly problems: readonly Problem[];
  readonly rescored: Rescored | null;
}): string {
  const { file, sequences, ledgers, problems, rescored } = result;
  const lines = problems.map(({ line, rollout, problem }) => `${file}:${line}: ${rollout ?? '-'} ${problem}`);
  lines.push(
    `${sequences} sequences, ${problems.length} problems: checksums, alignment and prefix rule` +
      (ledgers > 0 ? `; ${ledgers} compared with their ledgers` : '; none of their ledgers in this store'),
  );
  if (rescored) {
    lines.push(wordsOf(`${rescored.tokens} tokens scored again`, rescored));
    const { servers } = rescored;
    if (servers.length > 1) lines.push(...servers.map((one) => wordsOf(`all of them on ${one.server}`, one)));
  }
  return lines.join('\n');
}

function wordsOf(what: string, { largest, mean, at }: Differences['told']): string {
  const where = at ? ` (token ${at.position} of ${at.rollout})` : '';
  return `${what}: log-probabilities differ by at most ${largest.toPrecision(3)}${where}, by ${mean.toPrecision(3)} in the mean`;
}
