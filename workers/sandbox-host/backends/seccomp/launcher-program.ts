import { encode, type Instruction } from './filter.ts';
import type { Processor } from './rules.ts';

/** Where the program is put in memory. It has one segment, for which pages of 64 KiB are fine, too. */
const BASE = 0x40_0000;
const ALIGNMENT = 0x1_0000;
/** Bytes of the headers of an ELF file with one segment: elf(5). */
const HEADERS = 64 + 56;

/** Of prctl(2). */
const PR_SET_NO_NEW_PRIVS = 38;
const PR_SET_SECCOMP = 22;
const SECCOMP_MODE_FILTER = 2;

/** Status of the program when the kernel refuses the filter, or there is no program to run. */
const REFUSED_STATUS = 126;

/**
 * A program (the bytes of an ELF file) that puts `filter` on itself, for good and for all that it starts, and becomes
 * `argv[1] …` with its own environment. Needs no privilege, no library and no loader, so that nothing of an image has
 * a say and it takes a fraction of a millisecond.
 */
export function launcherProgram(processor: Processor, filter: readonly Instruction[]): Buffer {
  const assemble = { x64: codeForX64, arm64: codeForArm64 }[processor];
  const aligned = (bytes: number): number => Math.ceil(bytes / 8) * 8;
  const tableAt = BASE + aligned(HEADERS + assemble(0).length); // its length does not depend on the address
  const table = Buffer.alloc(16); // struct sock_fprog
  table.writeUInt16LE(filter.length, 0);
  table.writeBigUInt64LE(BigInt(tableAt + table.length), 8);
  const code = assemble(tableAt);
  const gap = Buffer.alloc(tableAt - BASE - HEADERS - code.length);
  const content = Buffer.concat([code, gap, table, encode(filter)]);
  return Buffer.concat([headers(processor, HEADERS + content.length), content]);
}

function headers(processor: Processor, length: number): Buffer {
  const bytes = Buffer.alloc(HEADERS);
  Buffer.from('7f454c46020101', 'hex').copy(bytes); // 64 bits, little-endian, version 1
  bytes.writeUInt16LE(2, 16); // an executable
  bytes.writeUInt16LE(processor === 'x64' ? 62 : 183, 18);
  bytes.writeUInt32LE(1, 20);
  bytes.writeBigUInt64LE(BigInt(BASE + HEADERS), 24); // its first instruction
  bytes.writeBigUInt64LE(64n, 32); // where the segment's header is
  for (const [at, value] of [64, 56, 1].entries()) bytes.writeUInt16LE(value, 52 + 2 * at);
  bytes.writeUInt32LE(1, 64); // to be loaded
  bytes.writeUInt32LE(5, 68); // to read and to run
  const place = [0, BASE, BASE, length, length, ALIGNMENT];
  for (const [at, value] of place.entries()) bytes.writeBigUInt64LE(BigInt(value), 72 + 8 * at);
  return bytes;
}

/** The stack pointer shows argc, then argv and its null, then the environment. */
function codeForX64(table: number): Buffer {
  const word = (value: number): Buffer => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    return bytes;
  };
  const set = (register: 'eax' | 'edx' | 'esi' | 'edi', value: number): Buffer =>
    Buffer.concat([Buffer.from([0xb8 + { eax: 0, edx: 2, esi: 6, edi: 7 }[register]]), word(value)]);
  const raw = (hex: string): Buffer => Buffer.from(hex.replaceAll(' ', ''), 'hex');
  const call = (number: number): Buffer => Buffer.concat([set('eax', number), raw('0f 05')]);
  const [prctl, execve, exitGroup] = [157, 59, 231];
  const exec = Buffer.concat([
    raw('48 8b 7b 10'), // mov rdi, [rbx+16]
    raw('48 8d 73 10'), // lea rsi, [rbx+16]
    raw('48 8b 0b'), // mov rcx, [rbx]
    raw('48 8d 54 cb 10'), // lea rdx, [rbx+rcx*8+16]
    call(execve),
  ]);
  return Buffer.concat([
    raw('48 89 e3'), // mov rbx, rsp
    ...[set('edi', PR_SET_NO_NEW_PRIVS), set('esi', 1), set('edx', 0)],
    raw('45 31 d2 45 31 c0'), // xor r10d, r10d; xor r8d, r8d
    call(prctl),
    ...[set('edi', PR_SET_SECCOMP), set('esi', SECCOMP_MODE_FILTER), set('edx', table)],
    call(prctl),
    raw('85 c0 75'), // test eax, eax; jnz over what follows
    Buffer.from([exec.length]),
    exec,
    ...[set('edi', REFUSED_STATUS), call(exitGroup)],
  ]);
}

function codeForArm64(table: number): Buffer {
  const set = (register: number, value: number): number[] => [
    0xd280_0000 + (value & 0xffff) * 32 + register, // movz
    0xf2a0_0000 + (value >>> 16) * 32 + register, // movk, lsl 16
  ];
  const call = (number: number): number[] => [...set(8, number), 0xd400_0001];
  const [prctl, execve, exitGroup] = [167, 221, 94];
  const exec = [
    0xf940_0a60, // ldr x0, [x19, #16]
    0x9100_4261, // add x1, x19, #16
    0xf940_0263, // ldr x3, [x19]
    0x8b03_0c22, // add x2, x1, x3, lsl #3
    ...call(execve),
  ];
  const instructions = [
    0x9100_03f3, // mov x19, sp
    ...[set(0, PR_SET_NO_NEW_PRIVS), set(1, 1), set(2, 0), set(3, 0), set(4, 0)].flat(),
    ...call(prctl),
    ...[set(0, PR_SET_SECCOMP), set(1, SECCOMP_MODE_FILTER), set(2, table)].flat(),
    ...call(prctl),
    0xb500_0000 + (exec.length + 1) * 32, // cbnz x0, over what follows
    ...exec,
    ...[...set(0, REFUSED_STATUS), ...call(exitGroup)],
  ];
  const bytes = Buffer.alloc(instructions.length * 4);
  for (const [at, instruction] of instructions.entries()) bytes.writeUInt32LE(instruction, at * 4);
  return bytes;
}
