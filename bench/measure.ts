import { closeSync, fdatasyncSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';

/** Milliseconds of a tick of /proc (USER_HZ is 100). */
const TICK_MS = 10;

/** Milliseconds of each of `n` runs, one after the other. */
export async function times(n: number, run: (index: number) => Promise<unknown>): Promise<number[]> {
  const all: number[] = [];
  for (let index = 0; index < n; index++) {
    const started = performance.now();
    await run(index);
    all.push(performance.now() - started);
  }
  return all;
}

/** The value below which `percent` of them lie, to a thousandth. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return rounded(
    sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))] ?? Number.NaN,
  );
}

export function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}

/** Appends lines to a file of its own below `folder` and makes each durable, to know what the disk takes for that. */
export class FsyncProbe {
  private readonly folder: string;
  private readonly fd: number;
  private readonly line = Buffer.alloc(600, 'x');

  constructor(folder: string) {
    this.folder = mkdtempSync(path.join(folder, 'fsync-'));
    this.fd = openSync(path.join(this.folder, 'file'), 'a');
  }

  /** Milliseconds of one. */
  time(): number {
    const started = performance.now();
    writeSync(this.fd, this.line);
    fdatasyncSync(this.fd);
    return performance.now() - started;
  }

  close(): void {
    closeSync(this.fd);
    rmSync(this.folder, { recursive: true });
  }
}

/** Milliseconds of processor time that processes have taken so far. */
export function cpuMs(pids: readonly number[]): number {
  const ticks = pids.map((pid) => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(fields[11]) + Number(fields[12]);
  });
  return ticks.reduce((total, each) => total + each, 0) * TICK_MS;
}
