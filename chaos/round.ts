import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { problemsOf } from './checks.ts';
import { Cluster } from './cluster.ts';
import { type Evidence, evidenceOf } from './evidence.ts';
import { Fleet, TIMES } from './fleet.ts';
import { leftOf, leftOnHosts } from './left.ts';
import { type FaultKind, makePlan } from './plan.ts';
import { PolicyServer } from './policy-server.ts';
import { Random } from './random.ts';
import { makeReport, type RoundReport } from './report.ts';
import { Storm } from './storm.ts';
import { makeTasks } from './tasks.ts';
import type { ProductionServer } from './temporal.ts';

/** How much a round does. */
export interface RoundSize {
  readonly rollouts: number;
  readonly turns: readonly [number, number];
  readonly hosts: readonly string[];
  readonly capacity: number;
  /** Milliseconds over which rollouts are started, and over which faults are made. */
  readonly startMs: number;
  readonly windowMs: number;
  /** Milliseconds between two parts of an answer. */
  readonly paceMs: number;
  /** One fault of each kind only. */
  readonly once: boolean;
  /** Which workers a deploy replaces, by the beginnings of their names. */
  readonly deployed: readonly string[];
  /** Milliseconds that the disturbed rollouts have to end. */
  readonly patienceMs: number;
}

export const FULL: RoundSize = {
  rollouts: 40,
  turns: [6, 12],
  hosts: ['a', 'b'],
  capacity: 16,
  startMs: 60_000,
  windowMs: 150_000,
  paceMs: 600,
  once: false,
  deployed: ['run-', 'init-', 'workflow', 'eval'],
  patienceMs: 900_000,
};

export const SHORT: RoundSize = {
  rollouts: 10,
  turns: [4, 6],
  hosts: ['a'],
  capacity: 10,
  startMs: 1000,
  windowMs: 14_000,
  paceMs: 200,
  once: true,
  deployed: ['run-', 'init-'],
  patienceMs: 600_000,
};

/** How a person wants a round. */
export interface RoundOptions {
  readonly seed: number;
  readonly size: RoundSize;
  /** Kinds of faults that are made. */
  readonly only: readonly FaultKind[];
  readonly keep: boolean;
  readonly production: ProductionServer | undefined;
  readonly say: (line: string) => void;
}

/** Tokens of one part of an answer. */
const PART_TOKENS = 16;
/** Milliseconds beyond the heartbeat timeout that a worker stands still. */
const BEYOND_MS = 3000;

/**
 * One cluster, all tasks undisturbed, all tasks in the storm, and what came of them. Its folder with logs and
 * ledgers stays where something is wrong, or with `keep`.
 */
export async function runRound(options: RoundOptions): Promise<RoundReport> {
  const { size, say, keep } = options;
  const root = await mkdtemp(path.join(os.tmpdir(), 'ch-'));
  const policy = await PolicyServer.start();
  const cluster = await Cluster.start({
    ...size,
    root,
    llmUrl: policy.url,
    everyRoleOnEachHost: true,
    production: options.production,
  }).catch(async (error) => {
    await policy.close();
    throw error;
  });
  let report: RoundReport;
  try {
    report = await weather(cluster, policy, options);
    await cluster.client.close();
  } finally {
    await cluster.stop();
    await policy.close();
  }
  const left = await leftOf(root, cluster.stateFolders);
  const problems = [...report.problems, ...left];
  if (problems.length === 0 && !keep) await rm(root, { recursive: true, force: true });
  else {
    await writeFile(path.join(root, 'requests.json'), JSON.stringify(policy.served));
    say(`logs, ledgers and the requests for tokens stay in ${root}`);
  }
  return { ...report, problems };
}

async function weather(
  cluster: Cluster,
  policy: PolicyServer,
  { seed, size, say, only }: RoundOptions,
): Promise<RoundReport> {
  const random = new Random(seed);
  const tasks = makeTasks(size.rollouts, random, size.turns);
  const stopMs = TIMES.heartbeatTimeoutSeconds * 1000 + BEYOND_MS;
  const plan = makePlan(random, { ...size, stopMs }, only);

  const calm = new Fleet(cluster.client, 'calm', tasks);
  await patiently(cluster, calm, size.patienceMs, calm.fly(0));
  say(`${tasks.length} rollouts ended undisturbed`);

  policy.served.length = 0;
  policy.pace = { tokens: PART_TOKENS, ms: size.paceMs };
  const fleet = new Fleet(cluster.client, 'storm', tasks);
  const storm = new Storm(cluster, policy, fleet, size.deployed, say);
  const cancelled = fleet.flights.filter(({ task }) => task.kind === 'cancelled');
  const flying = fleet.fly(size.startMs);
  const cancelling = cancelled.map(async (flight) => {
    await delay(size.startMs + random.next() * size.windowMs * 0.2);
    await fleet.cancel(flight);
    await fleet.cancel(flight);
  });
  const blowing = storm.blow(plan);
  await patiently(cluster, fleet, size.patienceMs, Promise.all([flying, blowing, ...cancelling]));
  say(`${tasks.length} rollouts ended in the storm`);

  const problems = await leftOnHosts(cluster.stateFolders);
  const evidence: Evidence[] = [];
  const hostDeaths = storm.faults.filter(({ kind }) => kind === 'killHost');
  for (const [index, flight] of fleet.flights.entries()) {
    const undisturbed = await evidenceOf(cluster, calm.flights[index] as (typeof calm.flights)[number]);
    const one = await evidenceOf(cluster, flight, hostDeaths);
    const served = policy.served.filter(({ task }) => task === flight.task.name);
    problems.push(...problemsOf(undisturbed, one, served));
    evidence.push(one);
  }
  const { faults, skipped } = storm;
  return makeReport({ seed, evidence, faults, skipped, served: policy.served, problems });
}

/** @throws Error that says where the open rollouts are, when the time is over or a process stays away */
export async function patiently(
  cluster: Cluster,
  fleet: Fleet,
  ms: number,
  work: Promise<unknown>,
): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`not over after ${ms / 1000} s`), ms);
  });
  const news = await Promise.race([work.then(() => null), late, cluster.broken]);
  clearTimeout(timer);
  if (news !== null) throw new Error(`${news}; open:\n${await fleet.whereabouts()}`);
}
