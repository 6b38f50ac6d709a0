import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import fc from 'fast-check';
import { encode, makeFilter } from '../../workers/sandbox-host/backends/seccomp/filter.ts';
import { launcherProgram } from '../../workers/sandbox-host/backends/seccomp/launcher-program.ts';
import {
  ABIS,
  ARGUMENT_RULES,
  ERRNO,
  type Errno,
  NUMBERS,
  type Processor,
  REFUSED,
} from '../../workers/sandbox-host/backends/seccomp/rules.ts';

/** A system call as a filter sees it. */
interface Call {
  readonly nr: number;
  readonly arch: number;
  readonly args: readonly bigint[];
}

/** What a program of classic BPF says of a call: the kernel's way, over the bytes that the kernel is given. */
function run(program: Buffer, call: Call): number {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(call.nr >>> 0, 0);
  data.writeUInt32LE(call.arch, 4);
  for (const [at, value] of call.args.entries()) data.writeBigUInt64LE(value, 16 + 8 * at);
  let accumulator = 0;
  for (let at = 0; at < program.length / 8; at++) {
    const [code, k] = [program.readUInt16LE(at * 8), program.readUInt32LE(at * 8 + 4)];
    const jump = (is: boolean): number => program.readUInt8(at * 8 + (is ? 2 : 3));
    if (code === 0x20) accumulator = data.readUInt32LE(k);
    else if (code === 0x15) at += jump(accumulator === k);
    else if (code === 0x25) at += jump(accumulator > k);
    else if (code === 0x45) at += jump((accumulator & k) !== 0);
    else if (code === 0x06) return k;
    else throw new Error(`instruction ${code}`);
  }
  throw new Error('it ran over its end');
}

/** What the rules say, read one by one. */
function expected(processor: Processor, { nr, arch, args }: Call): number {
  const refusal = (errno: Errno): number => 0x0005_0000 + ERRNO[errno];
  if (arch !== ABIS[processor].arch) return 0x8000_0000;
  if (nr >>> 0 > 466) return refusal('ENOSYS');
  const numbers = { ...ABIS[processor].numbers, ...NUMBERS };
  const name = Object.keys(numbers).find((each) => numbers[each] === nr);
  const rule = ARGUMENT_RULES.find(({ call }) => call === name);
  if (rule) {
    const value = Number(BigInt.asUintN(32, args[rule.argument] as bigint));
    const hit =
      'anyOf' in rule
        ? (value & rule.anyOf) !== 0
        : 'values' in rule
          ? rule.values.includes(value)
          : !rule.exceptValues.includes(value);
    return hit ? refusal(rule.errno) : 0x7fff_0000;
  }
  for (const errno of Object.keys(REFUSED) as Errno[]) {
    if (name !== undefined && REFUSED[errno]?.includes(name)) return refusal(errno);
  }
  return 0x7fff_0000;
}

test('the filter says of every call what its rules say', () => {
  const processors = Object.keys(ABIS) as Processor[];
  const programs = Object.fromEntries(processors.map((each) => [each, encode(makeFilter(each))]));
  const small = fc.integer({ min: 0, max: 50 }).map(BigInt);
  const wellKnown = fc.constantFrom(0x5412n, 0x1_0000_5412n, 0x5423n, 0x1000_0000n, 0x4_0000n, 0x3d0f00n);
  const argument = fc.oneof(small, wellKnown, fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }));
  const call = fc.record({
    nr: fc.oneof(fc.integer({ min: 0, max: 500 }), fc.integer(), fc.constantFrom(...ofInterest())),
    arch: fc.oneof(
      { weight: 9, arbitrary: fc.constantFrom(...processors.map((each) => ABIS[each].arch)) },
      fc.constantFrom(0x4000_0003, 0x4000_0028, 0), // i386, arm, none
    ),
    args: fc.array(argument, { minLength: 6, maxLength: 6 }),
  });
  fc.assert(
    fc.property(fc.constantFrom(...processors), call, (processor, each) => {
      assert.equal(run(programs[processor] as Buffer, each), expected(processor, each));
    }),
    { numRuns: 5000 },
  );
});

function ofInterest(): number[] {
  return Object.values(ABIS).flatMap(({ numbers }) => Object.values({ ...numbers, ...NUMBERS }));
}

test('the program that sets the filter hands on arguments, environment and status', (t) => {
  const processor = process.arch as Processor;
  const folder = mkdtempSync(path.join(os.tmpdir(), 'seccomp-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = path.join(folder, 'filtered');
  writeFileSync(file, launcherProgram(processor, makeFilter(processor)));
  chmodSync(file, 0o755);
  const script = 'echo "$0-$1-$A"; grep -E "^(Seccomp|NoNewPrivs):" /proc/self/status; exit 7';
  const result = spawnSync(file, ['/bin/sh', '-c', script, 'one', 'two three'], { env: { A: 'b' } });
  assert.equal(`${result.stdout}`, 'one-two three-b\nNoNewPrivs:\t1\nSeccomp:\t2\n');
  assert.equal(result.status, 7);
  for (const argv of [[], ['/nowhere/program']]) assert.equal(spawnSync(file, argv).status, 126);
});
