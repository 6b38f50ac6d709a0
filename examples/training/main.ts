/**
 * `npm run train:example`: trains SmolLM2 on two cores through the whole service. Starts, for each run, a real vLLM
 * server, the stack, the HTTP service, and the trainer, which knows only the last. A run that was interrupted goes on
 * from its newest checkpoint when it is asked for again.
 */
import { existsSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { EMBEDDED_SERVER } from '../../activities/llm/embedded/server.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';
import { pinnedEnvironment } from '../../scripts/setup/lib/environment.mjs';
import { freePort } from '../../scripts/vllm/server.ts';
import { type Stack, startStack } from '../../workers/stack/stack.ts';
import { finish, ready, start, stopAll } from './children.ts';
import { type Served, startLlama, startVllm } from './llm-servers.ts';

const HERE = import.meta.dirname;
const TRL = path.join(PROJECT_ROOT, 'examples', 'trl', 'train.py');
const SETTINGS = path.join(HERE, 'sums.json');

const { values: options } = parseArgs({
  options: {
    /** Where runs are kept. */
    folder: { type: 'string', default: path.join(PROJECT_ROOT, '.rollouts', 'training') },
    /** Settings of the task and the algorithm. */
    settings: { type: 'string', default: SETTINGS },
    /** Only this seed. */
    seed: { type: 'string' },
    /** vllm or llama.cpp, whose servers are replaced at each swap. */
    llm: { type: 'string', default: 'vllm' },
    /** Batch k+1 is sampled while step k is updated. */
    ahead: { type: 'boolean', default: false },
    /** Learning rate 0. */
    still: { type: 'boolean', default: false },
    /** TRL's trainer instead of the example's own (examples/trl). */
    trl: { type: 'boolean', default: false },
    /** The servers are given the old weights as the new version: the trainer stops. */
    'leave-out-swap': { type: 'boolean', default: false },
  },
});

async function main(): Promise<void> {
  await finish(start(process.execPath, ['scripts/vllm/main.mjs', '--only-set-up']), 'the set-up of vLLM');
  const { seeds, rules, algorithm } = JSON.parse(readFileSync(options.settings, 'utf8')) as Settings;
  const vllm = JSON.parse(readFileSync(path.join(PROJECT_ROOT, '.rollouts', 'vllm.json'), 'utf8')) as Vllm;
  const python = path.join(path.dirname(vllm.vllm), 'python');
  mkdirSync(options.folder, { recursive: true });
  const base = path.join(options.folder, 'base');
  if (!existsSync(path.join(base, 'config.json'))) {
    await finish(
      start(python, [path.join(HERE, 'prepare.py'), loadTools().model, vllm.a, base]),
      'prepare.py',
    );
  }
  for (const seed of options.seed === undefined ? seeds : [Number(options.seed)]) {
    const kind = kindOf(algorithm);
    const name = options.llm === 'llama.cpp' ? `${kind}-llama` : kind;
    await train({
      ...{ seed, kind: name, base, python, vllm: vllm.vllm },
      dropEqual: rules.dropEqual,
      folder: path.join(options.folder, `${name}-${seed}`),
    });
  }
}

/** Of a run, in its name: runs of different kinds have nothing in common. */
function kindOf(algorithm: string): string {
  if (options.trl) return 'trl';
  if (options['leave-out-swap']) return 'unswapped';
  if (options.still) return 'control';
  return options.ahead ? 'ahead' : algorithm;
}

interface Settings {
  readonly algorithm: string;
  readonly seeds: number[];
  readonly rules: { readonly dropEqual: boolean };
}

interface Vllm {
  readonly vllm: string;
  readonly a: string;
}

interface TrainOptions {
  readonly seed: number;
  readonly kind: string;
  readonly dropEqual: boolean;
  readonly base: string;
  readonly python: string;
  readonly vllm: string;
  readonly folder: string;
}

/** One run from its beginning, or its newest checkpoint, to its end. */
async function train({ seed, kind, dropEqual, base, python, vllm, folder }: TrainOptions): Promise<void> {
  const stateDir = path.join(folder, 'service');
  mkdirSync(stateDir, { recursive: true });
  const port = await ports(folder);
  // A server that is started again has what the run had last: the pool knows it by the version that it tells.
  const { version, weights } = newest(folder, base);
  const llama = options.llm === 'llama.cpp';
  const server = await (llama ? startLlama : startVllm)({
    ...{ python, vllm, base, folder, weights: path.resolve(weights), version, port: port.vllm },
  });
  let stack: Stack | undefined;
  try {
    const config = path.join(folder, 'rollouts.toml');
    writeFileSync(config, configuration(server, version, port.gateway));
    const rollouts = ['bin/rollouts.mjs', '--config', config, '--state-dir', stateDir];
    stack = await startStack(loadConfig({ file: config, flags: { state: { folder: stateDir } } }), (line) =>
      process.stderr.write(`${line}\n`),
    );
    const gateway = start(process.execPath, [...rollouts, 'gateway'], {
      log: openSync(path.join(folder, 'gateway.log'), 'a'),
    });
    const service = `http://127.0.0.1:${port.gateway}`;
    await ready(service, gateway);
    const program = options.trl ? [TRL] : ['-m', 'trainer'];
    const args = [...program, '--service', service, '--settings', path.resolve(options.settings)];
    args.push(
      '--seed',
      String(seed),
      '--kind',
      kind,
      '--base',
      base,
      '--folder',
      folder,
      '--llm',
      server.url,
    );
    if (llama) args.push('--llama-cpp', loadTools().python, EMBEDDED_SERVER, loadTools().model);
    // What was sampled before a restart is not in the server's counter, what was dropped is not in the groups, and what a
    // swap broke off on its way is in no record.
    if (version === 0 && !options.ahead && !dropEqual) args.push('--count');
    for (const flag of ['ahead', 'still', 'leave-out-swap'] as const)
      if (options[flag]) args.push(`--${flag}`);
    await finish(start(python, args, { packages: options.trl ? [await trlPackages()] : [] }), 'the trainer');
  } finally {
    await stopAll();
    await stack?.stop();
    await server.stop();
  }
}

/** Where a run's servers listen, the same after a restart: the pool knows its server by its address. */
async function ports(folder: string): Promise<{ vllm: number; gateway: number }> {
  const file = path.join(folder, 'ports.json');
  if (!existsSync(file)) {
    writeFileSync(file, JSON.stringify({ vllm: await freePort(), gateway: await freePort() }));
  }
  return JSON.parse(readFileSync(file, 'utf8'));
}

/** The newest checkpoint of a run, or what it begins with. */
function newest(folder: string, base: string): { version: number; weights: string } {
  const checkpoints = path.join(folder, 'checkpoints');
  const names = existsSync(checkpoints) ? readdirSync(checkpoints) : [];
  const version = Math.max(0, ...names.filter((name) => /^\d+$/.test(name)).map(Number));
  return { version, weights: version === 0 ? base : path.join(checkpoints, String(version)) };
}

function configuration({ url, entry }: Served, version: number, gatewayPort: number): string {
  const server = `{ url = "${url}", ${entry}, policyVersion = ${version} }`;
  return [
    `[llm]\nservers = [${server}]`,
    `[workers]\nhandlers = ["${path.join(HERE, 'handler.ts')}"]\ninitSlots = 4`,
    '[sandbox]\ncapacity = 32',
    `[gateway]\nport = ${gatewayPort}`,
  ].join('\n\n');
}

/** Folder of TRL's packages, beside those of vLLM's environment. */
async function trlPackages(): Promise<string> {
  const environment = await pinnedEnvironment({
    name: 'trl',
    requirements: path.join(path.dirname(TRL), 'requirements.txt'),
    env: process.env,
    say: () => process.stderr.write('bringing TRL\n'),
  });
  const lib = path.join(environment, 'lib');
  return path.join(lib, readdirSync(lib)[0] as string, 'site-packages');
}

await main();
