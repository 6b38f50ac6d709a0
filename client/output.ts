import { SingleBar } from 'cli-progress';
import Table from 'cli-table3';
import type { RolloutResult } from '../contracts/result.ts';
import { printable, printableJson } from './printable.ts';

/** Where a command's words go: people read standard error and tables, programs read JSON on standard output. */
export interface Output {
  readonly json: boolean;
  /** A line for a person. */
  note(line: string): void;
  /** The result of a command: text for a person, or with --json the value. */
  result(value: unknown, text: () => string): void;
}

/** Output of one command. */
export function makeOutput(json: boolean): Output {
  return {
    json,
    note: (line) => process.stderr.write(`${printable(line)}\n`),
    result: (value, text) => process.stdout.write(`${json ? printableJson(value) : printable(text())}\n`),
  };
}

/** Shows how far a batch is: a bar on a terminal, a line for every result elsewhere. */
export class BatchProgress {
  private started = 0;
  private ended = 0;
  private rewards = 0;
  private graded = 0;
  private readonly bar: SingleBar | undefined;
  private readonly output: Output;

  constructor(output: Output, stream: NodeJS.WriteStream = process.stderr) {
    this.output = output;
    if (!stream.isTTY) return;
    this.bar = new SingleBar({
      stream,
      format: 'rollouts {bar} {value}/{total} · {open} open · mean reward {mean} · {duration_formatted}',
      hideCursor: true,
      clearOnComplete: false,
    });
    this.bar.start(0, 0, this.figures());
  }

  begin(): void {
    this.started++;
    this.bar?.setTotal(this.started);
    this.bar?.update(this.ended, this.figures());
  }

  end(result: RolloutResult): void {
    this.ended++;
    if (result.reward) {
      this.graded++;
      this.rewards += result.reward.total;
    }
    if (this.bar) this.bar.update(this.ended, this.figures());
    else this.output.note(lineOf(result, this.ended));
  }

  stop(): void {
    this.bar?.stop();
  }

  private figures() {
    const mean = this.graded === 0 ? '-' : (this.rewards / this.graded).toFixed(2);
    return { open: this.started - this.ended, mean };
  }
}

function lineOf(result: RolloutResult, count: number): string {
  const what = result.reward
    ? `reward ${result.reward.total}`
    : (result.failure?.type ?? result.cancel?.reason);
  const seconds = (result.timings.totalMs / 1000).toFixed(1);
  return `[${count}] ${result.rolloutId} ${result.outcome}, ${what}, ${result.trajectory?.turns ?? 0} turns, ${seconds} s`;
}

/** A table as text. */
export function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const table = new Table({ head: [...head], style: { head: [], border: [] } });
  for (const row of rows) table.push([...row]);
  return table.toString();
}
