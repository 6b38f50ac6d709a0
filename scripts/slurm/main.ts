// `npm run test:slurm`: the jobs of temporal-config/production/slurm on a real Slurm, which runs on this machine's loopback
// as four nodes. An ordinary user submits them; rollouts run through the gateway while nodes leave, die and come. Root on
// Debian; it installs Slurm, and takes everything else away again.
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { PolicyServer } from '../../chaos/policy-server.ts';
import { choosePort } from '../../temporal-config/ports.ts';
import { testTools } from '../../test/support/test-tools.ts';
import { installPackages } from '../debian.ts';
import { bringTemporalServer } from '../production/temporal-server.ts';
import { toldToStop } from '../told-to-stop.ts';
import { Account } from './account.ts';
import { SlurmCluster } from './cluster.ts';
import { Story } from './story.ts';

const PROGRAMS = [
  '/usr/sbin/slurmctld',
  '/usr/sbin/slurmd',
  '/usr/sbin/munged',
  '/usr/bin/sbatch',
  '/usr/bin/initdb',
];
const PACKAGES = ['slurmctld', 'slurmd', 'slurm-client', 'munge', 'postgresql', 'uidmap'];
/** Which the jobs' user can read. */
const CACHE = '/var/cache/durable-rollouts';
/** The server's node has room for no node of workers, and they come after it. */
const NODES = { n0: 8, n1: 32, n2: 32, n3: 32 };

const began = Date.now();
const say = (line: string) => {
  process.stdout.write(`${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${line}\n`);
};

async function main(): Promise<string[]> {
  if (process.getuid?.() !== 0)
    throw new Error('Slurm’s daemons start processes of other users: only root can test this');
  const { apptainer } = testTools();
  if (apptainer === undefined)
    throw new Error('no apptainer: CI=true node scripts/test-tools/main.mjs sets it up');
  await install();
  const programs = process.env.TEMPORAL_PROGRAMS ?? (await bringTemporalServer(CACHE));
  const account = await Account.make('rollouts-slurm-test');
  say(`${account.name} has a checkout`);
  const folder = await mkdtemp(path.join(os.tmpdir(), 'slurm-'));
  await promisify(execFile)('chmod', ['755', folder]);
  const policy = await PolicyServer.start();
  let cluster: SlurmCluster | undefined;
  const problems: string[] = [];
  try {
    cluster = await SlurmCluster.start(folder, NODES);
    say(`Slurm is up: ${Object.keys(NODES).join(', ')}`);
    const settings = {
      PATH: `${path.dirname(apptainer)}:${account.home}/bin:${path.dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`,
      ROLLOUTS_CHECKOUT: account.checkout,
      ROLLOUTS_SHARED: `${account.home}/shared`,
      ROLLOUTS_DATABASE: `${account.home}/database`,
      TEMPORAL_PROGRAMS: programs,
      TEMPORAL_BROADCAST_IP: '127.0.0.1',
      SQL_PORT: String(await choosePort('SQL_PORT', 30_432, false)),
      TEMPORAL_PORT: String(await temporalPort(30_733)),
      ROLLOUTS_GATEWAY_PORT: String(await choosePort('gateway.port', 30_870, false)),
      ROLLOUTS_SANDBOX_CAPACITY: '8',
      ROLLOUTS_WORKERS_HANDLERS: JSON.stringify([path.join(account.checkout, 'chaos', 'handler.ts')]),
      ...cluster.env,
    };
    const elsewhere = { TEMPORAL_PORT: String(await temporalPort(31_533)) };
    const story = new Story({ cluster, account, policy, settings, elsewhere, say });
    problems.push(...(await Promise.race([story.tell(), toldToStop()])));
  } finally {
    await cluster?.stop();
    await policy.close();
    if (cluster) problems.push(...(await leftBy(account)));
    if (problems.length > 0) {
      const logs = `${folder}-logs`;
      await promisify(execFile)('bash', [
        '-c',
        `mkdir -p ${logs}; cp -r ${folder}/log ${account.checkout}/slurm-*.out ${account.home}/shared ${logs}`,
      ]).catch(() => {});
      say(`logs stay in ${logs}`);
    }
    await account.remove();
    await rm(folder, { recursive: true, force: true });
  }
  return problems;
}

async function install(): Promise<void> {
  if (PROGRAMS.every((program) => existsSync(program) || program.endsWith('initdb'))) return;
  await installPackages(PACKAGES);
}

/** A port that the server has with those beside it that it takes as well. */
async function temporalPort(first: number): Promise<number> {
  const port = await choosePort('TEMPORAL_PORT', first, false);
  for (const beside of [1, 2, 3, 6, -300, -299, -298, -297, -294])
    await choosePort('TEMPORAL_PORT', port + beside, true);
  return port;
}

/** What must not be there when all jobs have ended. */
async function leftBy(account: Account): Promise<string[]> {
  await delay(2000); // the kernel takes a moment for the last of a namespace
  const processes = await account.processes();
  const names = await Promise.all(
    processes.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  );
  const folders = (await readdir('/tmp')).filter((name) => name.startsWith(`r-${account.uid}-`));
  return [
    ...names.filter(Boolean).map((name) => `left over: ${name.replaceAll('\0', ' ')}`),
    ...folders.map((name) => `left over: /tmp/${name}`),
  ];
}

main().then(
  (problems) => {
    for (const problem of problems) console.log(`NOT AS IT SHOULD BE: ${problem}`);
    if (problems.length === 0) say('all is as it should be');
    process.exit(problems.length === 0 ? 0 : 1);
  },
  (error: unknown) => {
    console.error(error instanceof Error ? error.stack : String(error));
    process.exit(1);
  },
);
