import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { withParentDeath } from '../../temporal-config/dev-server.ts';
import { choosePort } from '../../temporal-config/ports.ts';

const run = promisify(execFile);
const FIRST_PORT = 30_017;
/** Milliseconds that the daemons have to be up in. */
const UP_MS = 60_000;
/** Where Slurm's usual way to keep account of processes needs a group of each step's processes. */
const FREEZER = '/sys/fs/cgroup/freezer';

/** A real Slurm of several nodes on this machine's loopback: munged, slurmctld and one slurmd per node. */
export class SlurmCluster {
  readonly folder: string;
  readonly env: { readonly SLURM_CONF: string };
  private readonly nodes: readonly string[];
  private readonly daemons = new Map<string, ChildProcess>();

  private constructor(folder: string, nodes: readonly string[]) {
    this.folder = folder;
    this.nodes = nodes;
    this.env = { SLURM_CONF: path.join(folder, 'slurm.conf') };
  }

  /** `nodes`: how many processors each says that it has. */
  static async start(folder: string, nodes: Readonly<Record<string, number>>): Promise<SlurmCluster> {
    const cluster = new SlurmCluster(folder, Object.keys(nodes));
    for (const name of ['state', 'log', 'munge', ...cluster.nodes.map((node) => `spool-${node}`)]) {
      await mkdir(path.join(folder, name), { recursive: true });
    }
    await writeFile(cluster.env.SLURM_CONF, await configuration(folder, nodes));
    await writeFile(
      path.join(folder, 'cgroup.conf'),
      'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n',
    );
    await writeFile(path.join(folder, 'munge', 'key'), randomBytes(1024), { mode: 0o400 });
    const inMunge = (option: string, name: string) => `--${option}=${path.join(folder, 'munge', name)}`;
    const places = [
      inMunge('key-file', 'key'),
      inMunge('socket', 'socket'),
      inMunge('pid-file', 'pid'),
      inMunge('seed-file', 'seed'),
      inMunge('log-file', 'log'),
    ];
    try {
      cluster.launch('munged', ['--foreground', '--force', ...places]);
      await cluster.until('munged', async () => existsSync(path.join(folder, 'munge', 'socket')));
      cluster.launch('slurmctld', ['-D']);
      for (const node of cluster.nodes) cluster.startNode(node);
      await cluster.until('slurmctld', async () =>
        (await Promise.all(cluster.nodes.map((node) => cluster.stateOf(node)))).every(
          (state) => state === 'idle',
        ),
      );
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  startNode(node: string): void {
    this.launch(node, ['-D', '-N', node], 'slurmd');
  }

  /** As Slurm says it: idle, mix, down, … */
  async stateOf(node: string): Promise<string> {
    const { stdout } = await this.ask('sinfo', ['--noheader', '--nodes', node, '--format', '%t']).catch(
      () => ({
        stdout: 'unknown',
      }),
    );
    return stdout.trim().split('\n')[0] as string;
  }

  /** Empty: Slurm has forgotten it or never knew it. */
  async jobState(job: string): Promise<string> {
    const { stdout } = await this.ask('scontrol', ['show', 'job', job]).catch(() => ({ stdout: '' }));
    return /JobState=(\S+)/.exec(stdout)?.[1] ?? '';
  }

  /** The power of a node fails: its daemon and all of a job's processes on it are gone. */
  async killNode(node: string, job: string): Promise<number> {
    this.daemons.get(node)?.kill('SIGKILL');
    const pids = await processesOf(node, job);
    for (const pid of pids) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It went with another.
      }
    }
    return pids.length;
  }

  /** Ends all jobs, then the daemons. */
  async stop(): Promise<void> {
    if (this.daemons.get('slurmctld')?.exitCode === null) {
      await this.ask('scancel', ['--state=PENDING', '--user=root']).catch(() => {});
      const jobs = async () =>
        (await this.ask('squeue', ['--noheader', '--format', '%i'])).stdout.trim().split('\n');
      for (const job of await jobs().catch(() => [])) {
        if (job) await this.ask('scancel', [job]).catch(() => {});
      }
      const giveUpAt = Date.now() + UP_MS;
      while ((await jobs().catch(() => [''])).join('') !== '' && Date.now() < giveUpAt) await delay(1000);
    }
    for (const [name, child] of [...this.daemons].reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, 'exit');
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), name === 'munged' ? 1000 : 10_000);
      await ended;
      clearTimeout(late);
    }
  }

  private launch(name: string, args: readonly string[], program = name): void {
    const [command, argv] = withParentDeath(`/usr/sbin/${program}`, args);
    const log = openSync(path.join(this.folder, 'log', name), 'a');
    this.daemons.set(
      name,
      spawn(command, argv, { stdio: ['ignore', log, log], env: { ...process.env, ...this.env } }),
    );
    closeSync(log);
  }

  private async until(name: string, isSo: () => Promise<boolean>): Promise<void> {
    const giveUpAt = Date.now() + UP_MS;
    while (!(await isSo())) {
      if (this.daemons.get(name)?.exitCode !== null || Date.now() > giveUpAt) {
        throw new Error(`${name} did not come up; see ${path.join(this.folder, 'log')}`);
      }
      await delay(500);
    }
  }

  private ask(program: string, args: readonly string[]) {
    return run(program, args, { env: { ...process.env, ...this.env } });
  }
}

async function configuration(folder: string, nodes: Readonly<Record<string, number>>): Promise<string> {
  const host = os.hostname();
  let port = await choosePort('Slurm', FIRST_PORT, false);
  const lines = Object.entries({
    ClusterName: 'test',
    SlurmctldHost: `${host}(127.0.0.1)`,
    SlurmctldPort: port,
    SlurmUser: 'root',
    AuthType: 'auth/munge',
    AuthInfo: `socket=${folder}/munge/socket`,
    StateSaveLocation: `${folder}/state`,
    SlurmdSpoolDir: `${folder}/spool-%n`,
    SlurmctldPidFile: `${folder}/slurmctld.pid`,
    SlurmdPidFile: `${folder}/slurmd-%n.pid`,
    ProctrackType: existsSync(FREEZER) ? 'proctrack/cgroup' : 'proctrack/linuxproc',
    TaskPlugin: 'task/none',
    SelectType: 'select/cons_tres',
    SelectTypeParameters: 'CR_Core',
    JobAcctGatherType: 'jobacct_gather/none',
    AccountingStorageType: 'accounting_storage/none',
    MpiDefault: 'none',
    SwitchType: 'switch/none',
    PreemptType: 'preempt/partition_prio',
    PreemptMode: 'REQUEUE',
    ReturnToService: 2,
    SlurmdTimeout: 20,
    // More than this machine has: only the scheduler counts.
    SlurmdParameters: 'config_overrides',
  }).map(([name, value]) => `${name}=${value}`);
  for (const [node, cpus] of Object.entries(nodes)) {
    port = await choosePort('slurmd', port + 1, false);
    const weight = cpus; // the smallest that fits
    lines.push(
      `NodeName=${node} NodeHostname=${host} NodeAddr=127.0.0.1 Port=${port} CPUs=${cpus} RealMemory=512000 Weight=${weight}`,
    );
  }
  lines.push('PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1');
  lines.push('PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10');
  return `${lines.join('\n')}\n`;
}

/** All processes below those that Slurm started for a job on a node, they included. */
async function processesOf(node: string, job: string): Promise<number[]> {
  const parents = new Map<number, number>();
  const own = new Set<number>();
  for (const pid of (await readdir('/proc')).map(Number).filter(Number.isInteger)) {
    const [stat, environment] = await Promise.all(
      ['stat', 'environ'].map((file) => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '')),
    );
    const parent = Number(/\) \S (\d+)/.exec(stat as string)?.[1] ?? 0);
    parents.set(pid, parent);
    const variables = (environment as string).split('\0');
    if (variables.includes(`SLURMD_NODENAME=${node}`) && variables.includes(`SLURM_JOB_ID=${job}`))
      own.add(pid);
  }
  // The step's daemon is the parent of its first process.
  for (const pid of [...own]) {
    const parent = parents.get(pid) as number;
    const name = await readFile(`/proc/${parent}/cmdline`, 'utf8').catch(() => '');
    if (name.startsWith('slurmstepd')) own.add(parent);
  }
  for (let before = -1; before !== own.size; ) {
    before = own.size;
    for (const [pid, parent] of parents) if (own.has(parent)) own.add(pid);
  }
  return [...own];
}
