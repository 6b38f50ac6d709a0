import { createReadStream } from 'node:fs';
import { access } from 'node:fs/promises';
import { byteLines } from '../../activities/byte-lines.ts';
import type { LlmDialect } from '../../activities/llm/dialect.ts';
import { makeDialect } from '../../activities/llm/dialects.ts';
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
interface Differences {
  tokens: number;
  largest: number;
  sum: number;
  /** Where the largest was. */
  at: { rollout: string; position: number } | null;
}

/**
 * `rollouts verify`: proves each line of a trajectory file, against its ledger where the store has it, and with
 * `rescore` against a server that has the model.
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
  const rescorer = options.rescore ? await Rescorer.open(config.llm.servers) : undefined;
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
  const differences = rescorer?.differences;
  const { tolerance } = options;
  if (differences && tolerance !== undefined && differences.largest > tolerance) {
    const problem = `log-probabilities differ by up to ${differences.largest}, more than ${tolerance}`;
    problems.push({ line: 0, rollout: differences.at?.rollout ?? null, problem });
  }
  const rescored = differences && {
    tokens: differences.tokens,
    largest: differences.largest,
    mean: differences.tokens === 0 ? 0 : differences.sum / differences.tokens,
    at: differences.at,
  };
  const result = { file, sequences, ledgers, problems, rescored: rescored ?? null };
  output.result(result, () => textOf(result));
  return problems.length === 0 ? 0 : 1;
}

/** Scores tokens again on one server. */
class Rescorer {
  readonly differences: Differences = { tokens: 0, largest: 0, sum: 0, at: null };
  private readonly signal = new AbortController().signal;

  private readonly dialect: LlmDialect;
  private readonly model: Model;

  private constructor(dialect: LlmDialect, model: Model) {
    this.dialect = dialect;
    this.model = model;
  }

  /** @throws RolloutError InvalidRequest without a server, LlmUnreachable, LlmUnsuitable */
  static async open([server]: readonly LlmServer[]): Promise<Rescorer> {
    if (!server)
      throw new RolloutError('InvalidRequest', 'no LLM server to score on: name one with --server');
    const dialect = makeDialect(server.dialect, server.url);
    try {
      return new Rescorer(dialect, await openModel(server, dialect, new AbortController().signal));
    } catch (error) {
      await dialect.close();
      throw error;
    }
  }

  /** Adds a sequence's differences. @returns why it can't be scored, if so. */
  async compare(trajectory: Trajectory, most: number): Promise<string[]> {
    const { identity, contextTokens } = this.model;
    if (identity.tokenizer_hash !== trajectory.model.tokenizer_hash) {
      return [
        `was sampled from ${trajectory.model.name}, whose tokenizer is not that of ${this.dialect.url}`,
      ];
    }
    const before = trajectory.input_ids.length;
    const ids = [...trajectory.input_ids, ...trajectory.output_ids];
    for (const [start, end] of runsToScore(trajectory, most)) {
      // Scoring samples one token more, so the last of a full context can't be.
      const stop = Math.min(before + end, contextTokens - 1);
      const from = before + start;
      if (stop <= from) continue;
      const { sampling } = trajectory;
      const scores = await this.dialect.score(ids.slice(0, stop), from, sampling, this.signal);
      if (!scores) return [`a ${this.dialect.name} server can't score what was sampled with these settings`];
      for (const [at, score] of scores.entries()) {
        this.add(trajectory, start + at, Math.abs(score - (trajectory.logprobs[start + at] as number)));
      }
    }
    return [];
  }

  close(): Promise<void> {
    return this.dialect.close();
  }

  private add({ rollout_id }: Trajectory, position: number, difference: number): void {
    this.differences.tokens++;
    this.differences.sum += difference;
    if (difference < this.differences.largest && this.differences.at) return;
    this.differences.largest = difference;
    this.differences.at = { rollout: rollout_id, position };
  }
}

function textOf(result: {
  readonly file: string;
  readonly sequences: number;
  readonly ledgers: number;
  readonly problems: readonly Problem[];
  readonly rescored: { tokens: number; largest: number; mean: number; at: Differences['at'] } | null;
}): string {
  const { file, sequences, ledgers, problems, rescored } = result;
  const lines = problems.map(({ line, rollout, problem }) => `${file}:${line}: ${rollout ?? '-'} ${problem}`);
  lines.push(
    `${sequences} sequences, ${problems.length} problems: checksums, alignment and prefix rule` +
      (ledgers > 0 ? `; ${ledgers} compared with their ledgers` : '; none of their ledgers in this store'),
  );
  if (rescored) {
    const where = rescored.at ? ` (token ${rescored.at.position} of ${rescored.at.rollout})` : '';
    lines.push(
      `${rescored.tokens} tokens scored again: log-probabilities differ by at most ` +
        `${rescored.largest.toPrecision(3)}${where}, by ${rescored.mean.toPrecision(3)} in the mean`,
    );
  }
  return lines.join('\n');
}
