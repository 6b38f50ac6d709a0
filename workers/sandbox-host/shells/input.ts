import { closeSync, openSync, readFileSync, readlinkSync, readSync } from 'node:fs';

/** Times and sets come by address, but for poll's time, which is a number of milliseconds. */
type Call = 'read' | 'select' | 'poll' | 'ppoll';
/** Numbers of the calls that wait for input, by processor (asm/unistd.h). */
const CALLS: Readonly<Record<string, Readonly<Record<number, Call>>>> = {
  x64: { 0: 'read', 19: 'read', 23: 'select', 270: 'select', 7: 'poll', 271: 'ppoll' },
  arm64: { 63: 'read', 65: 'read', 72: 'select', 73: 'ppoll' },
};
/** A terminal by the names that programs know it by. */
const TERMINAL = /^\/dev\/(tty|pts\/[0-9]+)$/;
/** Events of poll(2): POLLIN and POLLRDNORM. */
const POLLIN = 0x41;
/** Who waits for this long between looks at something else waits for somebody to type. */
const LONG_MS = 1000;
/** Most descriptors that are looked at. */
const MAX_DESCRIPTORS = 1024;

/**
 * The terminal, as it is called there, from which a process waits for input; null if it does not, or if
 * the kernel does not say what it does.
 */
export function terminalWaitedFor(pid: number): string | null {
  try {
    // "number, six arguments, …"; or "running".
    const waits = () => readFileSync(`/proc/${pid}/syscall`, 'latin1');
    const before = waits();
    const [number, ...words] = before.split(' ');
    const args = words.slice(0, 6).map((word) => BigInt(word));
    const call = CALLS[process.arch]?.[Number(number)];
    for (const fd of call === undefined ? [] : waitedFor(pid, call, args)) {
      const file = readlinkSync(`/proc/${pid}/fd/${fd}`);
      // It may have gone on meanwhile, and have opened the terminal by that number, to write to it.
      if (TERMINAL.test(file)) return waits() === before ? file : null;
    }
  } catch {
    // It has ended, or goes on.
  }
  return null;
}

function waitedFor(pid: number, call: Call, args: readonly bigint[]): number[] {
  const [first, second, third, , fifth] = args as [bigint, bigint, bigint, bigint, bigint];
  const isLong = (timeout: bigint) =>
    timeout === 0n || memory(pid, timeout, 8).readBigInt64LE() >= BigInt(LONG_MS / 1000);
  if (call === 'read') return [Number(first)];
  if (call === 'select') {
    // (count, descriptors to read from, …, …, timeout)
    if (second === 0n || !isLong(fifth)) return [];
    const count = Math.min(Number(first), MAX_DESCRIPTORS);
    const bits = memory(pid, second, Math.ceil(count / 8));
    return Array.from({ length: count }, (_, fd) => fd).filter(
      (fd) => (bits[fd >> 3] ?? 0) & (1 << (fd & 7)),
    );
  }
  // (array of {descriptor, events, events}, count, timeout)
  const ms = BigInt.asIntN(32, third);
  if (call === 'poll' ? ms >= 0n && ms < LONG_MS : !isLong(third)) return [];
  const entries = memory(pid, first, Math.min(Number(second), MAX_DESCRIPTORS) * 8);
  const found: number[] = [];
  for (let at = 0; at < entries.length; at += 8) {
    if (entries.readUInt16LE(at + 4) & POLLIN) found.push(entries.readInt32LE(at));
  }
  return found;
}

function memory(pid: number, address: bigint, length: number): Buffer {
  const file = openSync(`/proc/${pid}/mem`, 'r');
  try {
    const bytes = Buffer.alloc(length);
    return bytes.subarray(0, readSync(file, bytes, 0, length, address));
  } finally {
    closeSync(file);
  }
}
