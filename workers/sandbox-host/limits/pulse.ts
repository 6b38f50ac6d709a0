import { openSync, readSync } from 'node:fs';

/** Milliseconds between beats: shorter bursts of memory than this may pass unseen. */
const BEAT_MS = 10;

/** Bytes of the machine's memory that no file on disk backs, or not yet. */
export interface MachineMemory {
  /** Of processes alone, and {@link shared}. */
  readonly total: number;
  /** Of files and segments in memory, and what the kernel itself holds for whoever: queues, semaphores, page tables. */
  readonly shared: number;
  /** Of files, on their way to a disk; not in {@link total}. */
  readonly unwritten: number;
}

type Listener = (memory: MachineMemory) => void;

const listeners = new Set<Listener>();
let timer: NodeJS.Timeout | undefined;

/**
 * Tells of the machine's memory every {@link BEAT_MS} until the result is called. One small read for all sandboxes
 * together: whoever hears that it grows looks closer at its own.
 */
export function onBeat(listener: Listener): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    const memory = machineMemory();
    for (const each of listeners) each(memory);
  }, BEAT_MS).unref();
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

const buffer = Buffer.alloc(8192);
/** Kept open: this is read before every command. */
let file: number | undefined;

export function machineMemory(): MachineMemory {
  file ??= openSync('/proc/meminfo', 'r');
  const text = buffer.toString('latin1', 0, readSync(file, buffer, 0, buffer.length, 0));
  const bytes = (name: string): number =>
    Number(new RegExp(`^${name}: +([0-9]+) kB`, 'm').exec(text)?.[1] ?? 0) * 1024;
  const shared = bytes('Shmem') + bytes('SUnreclaim') + bytes('PageTables');
  const unwritten = bytes('Dirty') + bytes('Writeback');
  return { total: bytes('AnonPages') + shared, shared, unwritten };
}
