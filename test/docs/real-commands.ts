import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { readEndpoints } from '../../config/endpoints.ts';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';
import { withParentDeath } from '../../temporal-config/dev-server.ts';
import { makeWorld, VersionedServer } from '../pool/versioned-server.ts';
import { freePort } from '../support/temporal.ts';
import { tokenizerFolder } from '../support/tokenizer-folders.ts';
import { until } from '../support/until.ts';
import { COMMANDS, type Step } from './commands.ts';

/*
 * Commands of the documentation as they stand there, in a shell, one after the other, on a stack that the first of them
 * starts. What stands for an example in them is replaced as commands.ts says. Run by `npm run test:docs`.
 */

/** A tiny model that is to end soon. */
const SETTINGS = {
  ROLLOUTS_ROLLOUT_SAMPLING_MAX_TOKENS_PER_TURN: '48',
  ROLLOUTS_ROLLOUT_LIMITS_MAX_TURNS: '2',
};
/** Milliseconds that a command, or a service until it is up, may take: a loaded machine may take its time. */
const MOST_MS = 1_800_000;

let folder: string;
let env: NodeJS.ProcessEnv;
let vllm: VersionedServer;
const services: { child: ChildProcess; ended: Promise<unknown> }[] = [];
/** What the steps' `{name}`s stand for. */
const known: Record<string, string> = {};

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'docs-'));
  const inside = (name: string) => path.join(folder, name);
  await symlink(path.join(PROJECT_ROOT, 'examples'), inside('examples'));
  await mkdir(inside('bin'));
  const rollouts = `#!/bin/sh\nexec ${process.execPath} ${path.join(PROJECT_ROOT, 'bin', 'rollouts.mjs')} "$@"\n`;
  await writeFile(inside('bin/rollouts'), rollouts);
  await chmod(inside('bin/rollouts'), 0o755);
  await symlink(loadTools().temporal, inside('bin/temporal'));
  const problem = (id: number) =>
    JSON.stringify({ id: `p${id}`, question: `${id} + 1?`, answer: `#### ${id + 1}` });
  await writeFile(inside('problems.jsonl'), `${problem(1)}\n${problem(2)}\n`);
  const response = 'It is <answer>2</answer> \\boxed{2}';
  await writeFile(inside('answers.jsonl'), `${JSON.stringify({ task_id: 'p1', response })}\n`);
  const tokenizer = await tokenizerFolder('smollm2', folder);
  const world = await makeWorld(tokenizer);
  world.finishing = true;
  vllm = await VersionedServer.start(world, 0);
  const [gatewayPort, codecPort] = [await freePort(), await freePort()];
  Object.assign(known, {
    ...{ problems: inside('problems.jsonl'), tokenizer, vllm: vllm.url, other: inside('other') },
    ...{ gatewayPort: String(gatewayPort), codecPort: String(codecPort) },
    code: JSON.stringify({
      question: 'Print 1.',
      input_output: JSON.stringify({ inputs: [''], outputs: ['1'] }),
    }),
  });
  await mkdir(inside('other'));
  env = {
    ...process.env,
    ...SETTINGS,
    PATH: `${inside('bin')}:${process.env.PATH}`,
    ROLLOUTS_STATE_FOLDER: inside('.rollouts'),
    ROLLOUTS_GATEWAY_PORT: String(gatewayPort),
    ROLLOUTS_CODEC_SERVER_PORT: String(codecPort),
    ROLLOUTS_ARCHIVE_TO: inside('archive'),
  };
});
after(async () => {
  for (const { child, ended } of services.reverse()) {
    if (child.exitCode === null) process.kill(-(child.pid as number), 'SIGTERM');
    await ended;
  }
  await vllm?.stop();
  await rm(folder, { recursive: true, force: true });
});

const steps = Object.entries(COMMANDS)
  .filter((entry): entry is [string, Step] => 'step' in entry[1])
  .sort(([, a], [, b]) => a.step - b.step);
for (const [command, step] of steps) {
  test(command, async () => {
    await (BEFORE[step.step]?.() ?? Promise.resolve());
    const [line, prints] = [lineOf(command, step), step.prints && filled(step.prints)];
    if (step.says !== undefined) return serve(line, step.says);
    const { code, output } = await ended(line);
    assert.equal(code, step.code ?? 0, `${line}\n${output}`);
    if (prints) assert.ok(output.includes(prints), `${line}: no ${prints} in\n${output}`);
  });
}

/** What has to be known before a step. */
const BEFORE: Readonly<Record<number, () => Promise<void>>> = {
  10: async () => {
    // For `temporal`.
    const address = readEndpoints(path.join(folder, '.rollouts'))?.temporalAddress as string;
    env = { ...env, TEMPORAL_ADDRESS: address, ROLLOUTS_TEMPORAL_ADDRESS: address };
  },
  12: async () => {
    const [first] = await listed();
    known.rollout = first?.rolloutId as string;
  },
  22: async () => {
    // Some are still in the queue when the first are shown.
    const tasks = ['--tasks', known.problems as string, '--handler', 'math', '--samples', '40'];
    background('rollouts', ['run', ...tasks, '--batch', 'long']);
    await until(async () => {
      known.open = (await listed('--batch', 'long', '--stage', 'queued'))[0]?.rolloutId ?? '';
      return known.open !== '';
    }, 'an open rollout');
  },
  24: async () => void (await ended('rollouts cancel --batch long')),
};

async function listed(...filter: string[]): Promise<{ rolloutId: string }[]> {
  const { stdout } = await promisify(execFile)('rollouts', ['list', '--json', ...filter], {
    cwd: folder,
    env,
  });
  return JSON.parse(stdout);
}

function filled(text: string): string {
  return text.replace(/\{(\w+)\}/g, (whole, name) => known[name] ?? whole);
}

function lineOf(command: string, { as = [] }: Step): string {
  let line = command.replace(/^npx /, '');
  for (const [example, real] of as) {
    assert.ok(line.includes(example), `${command}: no ${example}`);
    line = line.replace(example, () => filled(real));
  }
  return line;
}

async function ended(line: string): Promise<{ code: number; output: string }> {
  const options = { cwd: folder, env, timeout: MOST_MS, maxBuffer: 1 << 28 };
  try {
    const { stdout, stderr } = await promisify(execFile)(...withParentDeath('bash', ['-c', line]), options);
    return { code: 0, output: stdout + stderr };
  } catch (error) {
    const { code, stdout = '', stderr = '' } = error as { code?: number; stdout?: string; stderr?: string };
    return { code: code ?? -1, output: stdout + stderr };
  }
}

async function serve(line: string, says: string): Promise<void> {
  const said = background('bash', ['-c', `exec ${line.replace(/^((?:\w+=\S+ )+)/, 'env $1')}`]);
  const { child } = services.at(-1) as (typeof services)[number];
  const giveUpAt = performance.now() + MOST_MS;
  while (!said().includes(says) && child.exitCode === null && performance.now() < giveUpAt) await delay(50);
  assert.ok(said().includes(says), `${line}\n${said()}`);
}

/** @returns what it has printed so far */
function background(file: string, args: string[]): () => string {
  // A group of its own, to be ended with all that it started; and with this process, should that be ended from outside.
  const child = spawn(...withParentDeath(file, args, 'TERM'), {
    cwd: folder,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  services.push({ child, ended: once(child, 'exit') });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  return () => output;
}
