import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { Config } from '../../config/load.ts';
import { RolloutError } from '../../contracts/failures.ts';
import { type Comparison, compare, type Measures, measure } from '../eval/measures.ts';
import { readSamples } from '../eval/samples.ts';
import type { Estimate } from '../eval/statistics.ts';
import { type Output, tableOf } from '../output.ts';
import type { BatchSummary } from '../summary.ts';
import { newBatchId, type RunOptions, runCommand } from './run.ts';

/** Options of `rollouts eval`: what to run, or a file of trajectories that were recorded. */
export interface EvalOptions extends Partial<RunOptions> {
  readonly from?: string;
  readonly compare?: string;
}

/** Values of k that the table shows, and the largest. */
const SHOWN_K = [1, 2, 4, 8, 16, 32, 64];

/**
 * `rollouts eval`: how good a policy is on a file of tasks, by rollouts that it runs or that were recorded.
 * @returns the exit code: 0 if every sample has a reward
 */
export async function evalCommand(config: Config, options: EvalOptions, output: Output): Promise<number> {
  const ran = options.from === undefined ? await runFor(config, options, output) : undefined;
  const file = options.from ?? (ran?.out as string);
  const samples = await readSamples(file);
  const measures = measure(samples);
  const compared =
    options.compare === undefined ? undefined : compare(samples, await readSamples(options.compare));
  // What failed before its first token has no line in the file.
  const unrecorded = ran ? Math.max(0, ran.summary.rollouts - samples.length) : 0;
  output.result({ file, measures, unrecorded, compared: compared ?? null }, () =>
    [
      table(measures),
      ...notes(file, unrecorded),
      ...(compared ? [verdict(compared, options.compare as string)] : []),
    ].join('\n'),
  );
  return measures.at(-1)?.failed === 0 && unrecorded === 0 && samples.length > 0 ? 0 : 1;
}

async function runFor(config: Config, options: EvalOptions, output: Output) {
  const { tasks, handler, samples = 1, concurrency = 64 } = options;
  if (tasks === undefined || handler === undefined) {
    throw new RolloutError(
      'InvalidRequest',
      'eval needs --tasks and --handler to run, or --from a file of trajectories',
    );
  }
  const batch = options.batch ?? newBatchId();
  const out = options.out ?? path.join(config.derived.stateFolder, 'out', `${batch}.jsonl`);
  await mkdir(path.dirname(out), { recursive: true });
  let summary: BatchSummary | undefined;
  const run = { ...options, tasks, handler, samples, concurrency, batch, out };
  await runCommand(config, run, {
    ...output,
    result: (value) => {
      summary = value as BatchSummary;
    },
  });
  return { out, summary: summary as BatchSummary };
}

function table(measures: readonly Measures[]): string {
  const most = Math.max(0, ...measures.flatMap(({ passAt }) => Object.keys(passAt).map(Number)));
  const ks = [...SHOWN_K.filter((k) => k < most), ...(most > 0 ? [most] : [])];
  const head = ['domain', 'tasks', 'samples', 'failed', ...ks.map((k) => `pass@${k}`)];
  return tableOf(
    [...head, 'mean reward', 'truncated', 'tool calls', 'tokens', 'seconds'],
    measures.map((one) => [
      one.domain,
      String(one.tasks),
      String(one.samples),
      one.failed === 0 ? '0' : `${one.failed} (${percent(one.failed / one.samples)})`,
      ...ks.map((k) => shown(one.passAt[k])),
      shown(one.meanReward),
      percent(one.truncated),
      one.toolCalls.toFixed(1),
      one.tokens.toFixed(0),
      one.seconds.toFixed(1),
    ]),
  );
}

const percent = (share: number) => `${(100 * share).toFixed(0)} %`;
const shown = (estimate: Estimate | undefined) =>
  estimate ? `${estimate.value.toFixed(3)} [${estimate.low.toFixed(2)}, ${estimate.high.toFixed(2)}]` : '-';

function notes(file: string, unrecorded: number): string[] {
  const line = `from ${file}; intervals are of 95 %, over tasks; failed samples are in no mean`;
  return unrecorded === 0 ? [line] : [line, `${unrecorded} rollouts failed before their first token`];
}

function verdict({ tasks, only, failed, difference, p, better, worse }: Comparison, file: string): string {
  const leftOut = [
    ...(only[0] + only[1] > 0 ? [`${only[0]} tasks of this and ${only[1]} of the other alone`] : []),
    ...(failed[0] + failed[1] > 0 ? [`${failed[0]} and ${failed[1]} failed samples`] : []),
  ];
  const rest = leftOut.length === 0 ? '' : `; left out: ${leftOut.join(', ')}`;
  return `${file} minus this, on ${tasks} tasks of both: ${shown(difference)}, ${better} better, ${worse} worse, p = ${p.toFixed(4)}${rest}`;
}
