// `npm run test:hosts`: four worker hosts and a Temporal server, each in a network namespace of its own. While rollouts run
// one host is cut off, one is drained and taken away, and the workflow workers of two are upgraded by worker versioning.
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual, promisify } from 'node:util';
import { grpcErrorIn } from '../client/grpc-error.ts';
import { loadTools } from '../config/tools.ts';
import { messageOf } from '../contracts/failures.ts';
import { DEPLOYMENT } from '../contracts/queues.ts';
import type { RolloutStatus } from '../contracts/signals.ts';
import type { Trajectory } from '../contracts/trajectory.ts';
import { problemsOf } from './checks.ts';
import { Cluster, nodeCommand } from './cluster.ts';
import { type Evidence, evidenceOf } from './evidence.ts';
import { Fleet, type Flight } from './fleet.ts';
import { leftOf, leftOnHosts } from './left.ts';
import { apart, Network, networkProblem } from './network.ts';
import { PolicyServer } from './policy-server.ts';
import { patiently } from './round.ts';
import type { ChaosTask } from './tasks.ts';
import { encode } from './tokens.ts';

const HOSTS = ['a', 'b', 'c', 'd'] as const;
/** What becomes of each host; `a` takes part in the upgrade. */
const [KEPT, CUT, DRAINED, UPGRADED] = HOSTS;
const CAPACITY = 8;
const TASKS = 20;
/** Milliseconds between two parts of an answer, and tokens of each: while there is trouble no rollout is to end. */
const SLOW = { tokens: 8, ms: 2000 };
const FAST = { tokens: 1000, ms: 0 };
const SILENT_LLM_SECONDS = 20;
const PATIENCE_MS = 900_000;
/** Milliseconds for which two versions have work. */
const RAMP_MS = 3000;
/** How often a server is told of a version, and milliseconds in between. */
const [MOST_TRIES, AGAIN_MS] = [10, 2000];
/** Says that this process has a network of its own. */
const APART = '--apart';
/** What an agent is told first in a sandbox that takes the place of another. */
const NEW_SHELL = encode('[the shell was restarted in ');

const run = promisify(execFile);
const version = (buildId: string) => ['--deployment-name', DEPLOYMENT, '--build-id', buildId, '--yes'];

const began = Date.now();
const say = (line: string) => {
  process.stdout.write(`${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${line}\n`);
};

/** What is wrong at the end, as sentences. */
async function main(): Promise<string[]> {
  const network = await Network.make(['temporal', ...HOSTS]);
  const root = await mkdtemp(path.join(os.tmpdir(), 'ho-'));
  const policy = await PolicyServer.start(undefined, network.address);
  const buildIds = new Map<string, string>();
  const cluster = await Cluster.start({
    ...{ root, hosts: HOSTS, capacity: CAPACITY, llmUrl: policy.url, oneWorkerPerHost: true },
    silentLlmSeconds: SILENT_LLM_SECONDS,
    placeOf: (name) => network.place(name),
    environmentOf: (member): Record<string, string> => {
      const buildId = buildIds.get(member);
      return buildId === undefined ? {} : { ROLLOUTS_WORKERS_BUILD_ID: buildId };
    },
  });
  say('four hosts are up');
  let problems: string[];
  try {
    problems = await new Trouble(network, cluster, policy, buildIds).check();
    await cluster.client.close();
  } finally {
    await cluster.stop();
    await policy.close();
  }
  problems.push(...(await leftOf(root, cluster.stateFolders)));
  if (problems.length === 0) await rm(root, { recursive: true, force: true });
  else say(`logs and ledgers stay in ${root}`);
  return problems;
}

/** All rollouts undisturbed, all rollouts in trouble, and what came of them. */
class Trouble {
  private readonly network: Network;
  private readonly cluster: Cluster;
  private readonly policy: PolicyServer;
  private readonly buildIds: Map<string, string>;
  private readonly calm: Fleet;
  private readonly fleet: Fleet;

  constructor(network: Network, cluster: Cluster, policy: PolicyServer, buildIds: Map<string, string>) {
    this.network = network;
    this.cluster = cluster;
    this.policy = policy;
    this.buildIds = buildIds;
    const tasks = Array.from({ length: TASKS }, (_, index): ChaosTask => {
      return { name: `t${String(index).padStart(2, '0')}`, kind: 'usual', turns: 9 + (index % 4) };
    });
    this.calm = new Fleet(cluster.client, 'calm', tasks);
    this.fleet = new Fleet(cluster.client, 'trouble', tasks);
  }

  async check(): Promise<string[]> {
    const { cluster, calm, fleet, policy } = this;
    await patiently(cluster, calm, PATIENCE_MS, calm.fly(0));
    say(`${TASKS} rollouts ended undisturbed`);
    policy.served.length = 0;
    policy.pace = SLOW;
    const flying = fleet.fly(2000);
    const trouble = this.untilAllHostsWork()
      .then((on) => Promise.all([this.cutOff(on.get(CUT) ?? []), this.drain(), this.upgrade()]))
      .then(() => {
        policy.pace = FAST;
      });
    await patiently(cluster, fleet, PATIENCE_MS, Promise.all([flying, trouble]));
    say(`${TASKS} rollouts ended in trouble`);
    return this.judge();
  }

  /** Which rollouts work on each host, once some do on all of them and have come to their second turn. */
  private async untilAllHostsWork(): Promise<Map<string | null, Flight[]>> {
    for (;;) {
      const on = new Map<string | null, Flight[]>();
      for (const flight of this.fleet.open) {
        const turns = this.policy.served.filter(({ task }) => task === flight.task.name).length;
        if (turns < 2) continue;
        const { host } = await this.statusOf(flight);
        on.set(host, [...(on.get(host) ?? []), flight]);
      }
      if (HOSTS.every((host) => on.has(host))) return on;
      await delay(200);
    }
  }

  /** Asked again while the server has no worker that answers, whatever it says of that: some are just being replaced. */
  private async statusOf({ rolloutId }: Flight): Promise<RolloutStatus> {
    for (;;) {
      try {
        return await this.cluster.client.status(rolloutId);
      } catch (error) {
        if (!grpcErrorIn(error)) throw error;
        await delay(AGAIN_MS);
      }
    }
  }

  /** Pulls the cable, until everything that ran there has begun again elsewhere. */
  private async cutOff(there: readonly Flight[]): Promise<void> {
    await this.network.cut(CUT);
    say(`${CUT} is cut off with ${there.length} rollouts`);
    for (const flight of there) {
      // One may have ended just before.
      while (flight.result === null && (await this.statusOf(flight)).attempt === 1) {
        await delay(500);
      }
    }
    await this.network.mend(CUT);
    say(`${CUT} is back`);
  }

  /** As an operator does it: the command, on that host; then its processes are stopped. */
  private async drain(): Promise<void> {
    const argv = ['host', 'drain', '--within', '2', '--moving', '240'];
    const { inside } = this.network.place(DRAINED);
    const [command, ...args] = [...inside, ...nodeCommand('bin/rollouts.mjs'), ...argv];
    const env = { ...process.env, ROLLOUTS_CONFIG: this.cluster.configFileOf(DRAINED) };
    const child = spawn(command as string, args, { env, stdio: ['ignore', 'inherit', 'inherit'] });
    const [code] = await once(child, 'exit');
    if (code !== 0) throw new Error(`rollouts host drain ended with ${code}`);
    for (const prefix of [`worker-${DRAINED}`, `host-${DRAINED}`]) {
      for (const member of this.cluster.named(prefix)) await member.stop();
    }
    say(`${DRAINED} is drained and gone`);
  }

  /** From workers without a version to 2, all at once, and from 2 to 3 by a ramp. */
  private async upgrade(): Promise<void> {
    await this.replace(UPGRADED, '2');
    await this.deployment('set-current-version', ...version('2'));
    await this.replace(KEPT, '2');
    await this.replace(UPGRADED, '3');
    await this.deployment('set-ramping-version', ...version('3'), '--percentage', '50');
    await delay(RAMP_MS);
    await this.deployment('set-current-version', ...version('3'));
    await this.replace(KEPT, '3');
    const state = await this.deployment('describe', '--name', DEPLOYMENT, '--output', 'json');
    if (!/"currentVersionBuildID": *"3"/i.test(state)) throw new Error(`not the current version: ${state}`);
  }

  private async replace(host: string, buildId: string): Promise<void> {
    const name = `worker-${host}`;
    this.buildIds.set(name, buildId);
    for (const member of this.cluster.named(name)) await member.replace();
    say(`${name} has version ${buildId}`);
  }

  /** As an operator does it, who says it again to a server that was too busy to answer. */
  private async deployment(command: string, ...more: readonly string[]): Promise<string> {
    const args = ['worker', 'deployment', command, ...more, '--address', this.cluster.address];
    for (let tries = 1; ; tries++) {
      try {
        const { stdout } = await run(loadTools().temporal, args);
        say(`${command} ${more.join(' ')}`);
        return stdout;
      } catch (error) {
        if (tries === MOST_TRIES) throw error;
        say(`${command}: ${(error as { stderr?: string }).stderr?.trim() || messageOf(error)}`);
        await delay(AGAIN_MS);
      }
    }
  }

  private async judge(): Promise<string[]> {
    const { cluster, policy } = this;
    const problems = await leftOnHosts(
      HOSTS.filter((host) => host !== DRAINED).map((host) => cluster.stateFolderOf(host)),
    );
    let moved = 0;
    let again = 0;
    for (const [index, flight] of this.fleet.flights.entries()) {
      const calm = await evidenceOf(cluster, this.calm.flights[index] as Flight);
      const one = await evidenceOf(cluster, flight);
      const served = policy.served.filter(({ task }) => task === flight.task.name);
      const hasMoved = one.activities.some(({ type, how }) => type === 'shelve' && how === 'completed');
      // It was told of its new shell, and what it said then nobody else was asked for.
      problems.push(...problemsOf(hasMoved ? one : calm, one, served));
      if (hasMoved) {
        moved++;
        problems.push(...problemsOfMove(calm, one));
      }
      const { attempt = 1, retried = [] } = one.terminal ?? {};
      if (attempt > 1) again++;
      const others = retried.filter(({ type }) => !EXPECTED.has(type));
      if (others.length > 0)
        problems.push(`${flight.rolloutId} was tried again for ${JSON.stringify(others)}`);
    }
    if (moved === 0) problems.push('no rollout has moved');
    if (again === 0) problems.push('no rollout has begun again');
    say(`${moved} rollouts have moved, ${again} have begun again`);
    return problems;
  }
}

/** What a host that is cut off may cost. */
const EXPECTED: ReadonlySet<string> = new Set(['WorkerLost', 'HostLost', 'LlmUnreachable', 'SandboxLost']);

/** Of one that moved: all is as in an undisturbed run up to the word of its new shell, and what it had stayed. */
function problemsOfMove(calm: Evidence, { flight, trajectory, terminal }: Evidence): string[] {
  const { output_ids = [] } = (trajectory ?? {}) as Partial<Trajectory>;
  const undisturbed = (calm.trajectory as Trajectory).output_ids;
  const told = output_ids.findIndex((_, at) => NEW_SHELL.every((id, index) => output_ids[at + index] === id));
  const same = told === -1 ? undisturbed.length : told - 1; // the line break before it
  const problems: string[] = [];
  if (!isDeepStrictEqual(output_ids.slice(0, same), undisturbed.slice(0, same))) {
    problems.push('its tokens before the move are not those of an undisturbed run');
  }
  if (terminal?.host === DRAINED) problems.push('it has moved to where it was');
  return problems.map((problem) => `${flight.rolloutId}: ${problem}`);
}

const problem = networkProblem();
if (problem !== null) {
  process.stderr.write(`npm run test:hosts needs root and network namespaces: ${problem}\n`);
  process.exit(2);
}
if (!process.argv.includes(APART)) {
  const [command, args] = apart([process.execPath, ...process.execArgv, process.argv[1] as string, APART]);
  const { status } = spawnSync(command, args, { stdio: 'inherit' });
  process.exit(status ?? 1);
}
try {
  const problems = await main();
  for (const each of problems) say(`PROBLEM ${each}`);
  say(problems.length === 0 ? 'no rollout was lost' : `${problems.length} problems`);
  process.exit(problems.length === 0 ? 0 : 1);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
  process.exit(1);
}
