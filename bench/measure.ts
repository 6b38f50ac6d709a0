import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';

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

/** Milliseconds of appending a line and making it durable, in a file of its own below `folder`. */
export function fsyncTimes(folder: string, n: number): number[] {
  const own = mkdtempSync(path.join(folder, 'fsync-'));
  const fd = openSync(path.join(own, 'file'), 'a');
  const line = Buffer.alloc(600, 'x');
  try {
    return Array.from({ length: n }, () => {
      const started = performance.now();
      writeSync(fd, line);
      fdatasyncSync(fd);
      return performance.now() - started;
    });
  } finally {
    closeSync(fd);
    rmSync(own, { recursive: true });
  }
}
