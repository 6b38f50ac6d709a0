import { randomUUID } from 'node:crypto';

/** Letters of what tells processes of one host apart. */
const LETTERS = 8;

/** Name of a process that samples, in its pool, for as long as it lives. */
export function workerName(host: string): string {
  return `${host}-${randomUUID().slice(0, LETTERS)}`;
}

/** The hosts of such processes. */
export function hostsOf(workers: readonly string[]): Set<string> {
  return new Set(workers.map((name) => name.slice(0, -LETTERS - 1)));
}
