import {
  ABIS,
  ARGUMENT_RULES,
  type ArgumentRule,
  ERRNO,
  type Errno,
  LAST_KNOWN,
  NUMBERS,
  type Processor,
  REFUSED,
} from './rules.ts';

/** One instruction of classic BPF (struct sock_filter of <linux/filter.h>). */
export interface Instruction {
  readonly code: number;
  readonly jt: number;
  readonly jf: number;
  readonly k: number;
}

/** Offsets in struct seccomp_data of <linux/seccomp.h>; an argument's lower half comes first on both processors. */
const DATA = { nr: 0, arch: 4, arguments: 16 };

const RETURN = { allow: 0x7fff_0000, kill: 0x8000_0000, errno: 0x0005_0000 };

const load = (offset: number): Instruction => ({ code: 0x20, jt: 0, jf: 0, k: offset });
const give = (value: number): Instruction => ({ code: 0x06, jt: 0, jf: 0, k: value });
const ifEqual = (k: number, jt: number, jf: number): Instruction => ({ code: 0x15, jt, jf, k });
const ifAbove = (k: number, jt: number, jf: number): Instruction => ({ code: 0x25, jt, jf, k });
const ifAnyBit = (k: number, jt: number, jf: number): Instruction => ({ code: 0x45, jt, jf, k });

const refuse = (errno: Errno): Instruction => give(RETURN.errno | ERRNO[errno]);

/**
 * What a sandbox may ask of the kernel: all but what {@link REFUSED} and {@link ARGUMENT_RULES} name. A call of another
 * processor's kind (of 32 bits) ends its program: the numbers mean others there.
 */
export function makeFilter(processor: Processor): Instruction[] {
  const { arch, numbers } = ABIS[processor];
  const all: Readonly<Record<string, number>> = { ...numbers, ...NUMBERS };
  const begin = [load(DATA.arch), ifEqual(arch, 1, 0), give(RETURN.kill), load(DATA.nr)];
  const unknown = [ifAbove(LAST_KNOWN, 0, 1), refuse('ENOSYS')];
  const byArgument = ARGUMENT_RULES.flatMap((rule) => {
    const body = ofArgument(rule);
    return [ifEqual(all[rule.call] as number, 0, body.length), ...body];
  });
  const refused = Object.entries(REFUSED).flatMap(([errno, calls]) => {
    const here = calls.flatMap((call) => all[call] ?? []);
    // The last jumps over the refusal, if it is another.
    const tests = here.map((nr, at) => ifEqual(nr, here.length - at - 1, at === here.length - 1 ? 1 : 0));
    return [...tests, refuse(errno as Errno)];
  });
  return [...begin, ...unknown, ...byArgument, ...refused, give(RETURN.allow)];
}

/** What becomes of a call that has a rule for an argument. */
function ofArgument(rule: ArgumentRule): Instruction[] {
  const value = load(DATA.arguments + 8 * rule.argument);
  const [no, yes] = [refuse(rule.errno), give(RETURN.allow)];
  if ('anyOf' in rule) return [value, ifAnyBit(rule.anyOf, 0, 1), no, yes];
  const [values, atMatch, otherwise] =
    'values' in rule ? [rule.values, no, yes] : [rule.exceptValues, yes, no];
  const tests = values.map((each, at) => ifEqual(each, values.length - at, 0));
  return [value, ...tests, otherwise, atMatch];
}

/** As the kernel takes them. */
export function encode(filter: readonly Instruction[]): Buffer {
  const bytes = Buffer.alloc(filter.length * 8);
  for (const [index, { code, jt, jf, k }] of filter.entries()) {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(jt, index * 8 + 2);
    bytes.writeUInt8(jf, index * 8 + 3);
    bytes.writeUInt32LE(k, index * 8 + 4);
  }
  return bytes;
}
