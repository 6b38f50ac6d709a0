import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import type { Config } from '../../config/load.ts';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';
import { startStack } from '../../workers/stack/stack.ts';
import type { Output } from '../output.ts';
import { RolloutClient } from '../rollout-client.ts';
import { newBatchId, runTasks } from './run.ts';

/** Options of `rollouts up`. */
export interface UpOptions {
  /** Stop after the sample batch. */
  readonly exit: boolean;
  /** False: start the stack and run nothing. */
  readonly sample: boolean;
  readonly samples: number;
}

/**
 * Starts the whole stack on this machine, runs the sample batch, and stays until it is told to stop. A
 * sample batch that was interrupted, even by SIGKILL, is taken up where it was.
 * @returns the exit code.
 */
export async function upCommand(config: Config, options: UpOptions, output: Output): Promise<number> {
  const told = new Promise<string>((resolve) => {
    // npm passes on a Ctrl-C that the terminal has sent already: the second must not break off the stopping.
    process.on('SIGINT', () => resolve('interrupted'));
    process.on('SIGTERM', () => resolve('told to stop'));
  });
  const stack = await startStack(config, output.note);
  const ended = Promise.race([told, stack.broken]);
  let code = 0;
  try {
    if (options.sample) {
      const batch = runSampleBatch(stack.config, options.samples, output);
      const first = await Promise.race([batch, ended]);
      if (typeof first === 'string') {
        batch.catch(() => {}); // what it says when its server goes away is no news any more
        output.note(first);
        return first === 'interrupted' ? 130 : 1;
      }
      code = first;
      output.note(`Temporal UI: ${stack.uiUrl}/namespaces/${stack.config.temporal.namespace}/workflows`);
    }
    if (options.exit) return code;
    output.note('The stack is up. Ctrl-C stops it.');
    const why = await ended;
    output.note(why);
    return why === 'interrupted' || why === 'told to stop' ? code : 1;
  } finally {
    output.note('stopping: workers, sandbox host, LLM server, Temporal');
    await stack.stop();
  }
}

async function runSampleBatch(config: Config, samples: number, output: Output): Promise<number> {
  const mark = new BatchMark(path.join(config.derived.stateFolder, 'sample-batch.json'));
  const { batchId, continued } = mark.begin();
  if (continued) output.note(`going on with batch ${batchId}, which was interrupted`);
  const outFolder = path.join(config.derived.stateFolder, 'out');
  mkdirSync(outFolder, { recursive: true });
  const client = await RolloutClient.connect(config);
  try {
    const code = await runTasks(
      client,
      forSample(config),
      await loadHandlers(config.workers, { python: () => loadTools().python }),
      {
        tasks: path.join(PROJECT_ROOT, 'examples', 'tasks', 'arithmetic.jsonl'),
        handler: 'math',
        samples,
        concurrency: 64,
        batch: batchId,
        out: path.join(outFolder, `${batchId}.jsonl`),
      },
      output,
    );
    mark.finish(batchId);
    return code;
  } finally {
    await client.close();
  }
}

/** Short answers are asked for: bounds that fit them, where nobody set others, save most of the time. */
function forSample(config: Config): Config {
  const { rollout, origins } = config;
  const sampling = { ...rollout.sampling };
  const limits = { ...rollout.limits };
  if (!('rollout.sampling.maxTokensPerTurn' in origins)) sampling.maxTokensPerTurn = 96;
  if (!('rollout.limits.maxTurns' in origins)) limits.maxTurns = 4;
  return { ...config, rollout: { ...rollout, sampling, limits } };
}

/** Remembers a batch that is not finished, across the end of this process. */
class BatchMark {
  private readonly file: string;

  constructor(file: string) {
    this.file = file;
  }

  begin(): { batchId: string; continued: boolean } {
    const last = this.read();
    if (last && !last.finished) return { batchId: last.batchId, continued: true };
    const batchId = newBatchId();
    this.write({ batchId, finished: false });
    return { batchId, continued: false };
  }

  finish(batchId: string): void {
    this.write({ batchId, finished: true });
  }

  private read(): { batchId: string; finished: boolean } | undefined {
    if (!existsSync(this.file)) return undefined;
    try {
      return JSON.parse(readFileSync(this.file, 'utf8'));
    } catch {
      return undefined; // damaged: a new batch is begun, the old one's rollouts go on by themselves
    }
  }

  private write(mark: { batchId: string; finished: boolean }): void {
    writeFileSync(`${this.file}.new`, JSON.stringify(mark));
    renameSync(`${this.file}.new`, this.file);
  }
}
