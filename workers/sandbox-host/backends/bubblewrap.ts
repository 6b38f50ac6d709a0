import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, existsSync } from 'node:fs';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { type SandboxSpec, WORKSPACE } from '../../../contracts/sandbox.ts';
import { type ProcessInfo, pidNamespace, processInfo, SANDBOX_VARIABLE, signal } from '../processes.ts';
import type { Backend, Creation, Entry, Handle, Mount, Probe, Program } from './backend.ts';
import { type BwrapProgram, prepareBwrap } from './bwrap-program.ts';
import { programEnvironment } from './environment.ts';
import { CLOSE_DESCRIPTORS, launch } from './launcher.ts';
import {
  boundFiles,
  countIn,
  enterIpcOf,
  enterNamespaces,
  examineAs,
  killAllIn,
  type Namespaced,
  processesIn,
  seal,
  untilEnded,
  withoutPrivileges,
} from './namespaces.ts';
import { refuseImage } from './no-images.ts';
import { Owners } from './owners.ts';
import { installFilter } from './seccomp/install.ts';
import { asUser, SYSTEM_PATH, staged } from './staging.ts';
import { AS_THEY_ARE, etcFiles, systemFolders } from './system-files.ts';
import { userNamespaceAdvice } from './user-namespaces.ts';
import { runQuietly } from './wait.ts';

const CONTROL = '/run/rollout';
const HOME = '/root';

/** What lies in memory, and how much of the sandbox's memory each may take: some is left for processes. */
const MEMORY_FOLDERS = { '/tmp': 1 / 2, [HOME]: 1 / 8, '/dev/shm': 1 / 8 };

function memoryFolders({ limits }: SandboxSpec): Record<string, number> {
  const sizes = Object.entries(MEMORY_FOLDERS).map(([folder, share]) => [
    folder,
    Math.ceil(limits.memoryBytes * share),
  ]);
  return Object.fromEntries(sizes);
}

/**
 * First process of a sandbox: says that everything is mounted, lets go of all that it has of the host but
 * its stdin, and lives as long as the host holds that. What runs in the sandbox can reach into it.
 */
const FIRST_PROCESS = [
  ...['/bin/bash', '--norc', '--noprofile', '-c'],
  `${CLOSE_DESCRIPTORS}; echo ready; exec >/dev/null 2>&1; read -r _`,
];

/** Of the owners: who tries it. */
const TRIAL = 'trial';

type Command = [file: string, argv: string[], env: Record<string, string>];

interface Sandbox extends Namespaced {
  readonly outer: ChildProcess;
  /** Its file systems in memory have their bounds. */
  readonly bounded: Promise<void>;
}

/** Namespaces of the kernel by way of bubblewrap: no root needed, about 10 ms to start. */
export class BubblewrapBackend implements Backend {
  readonly name = 'bubblewrap';
  readonly guarantees = {
    network: true,
    files: true,
    processes: true,
    user: true,
    systemCalls: true,
    limits: 'memory, processes and disk of the whole sandbox by watching; the rest per process by rlimits',
  };
  private readonly bwrapPath: string;
  private readonly sharedDir: string;
  private bwrap: BwrapProgram | undefined;
  private readonly owners: Owners;
  /** What all programs are started by. */
  private filter = '';

  /** `sharedDir` holds files that all sandboxes see; it is written by {@link probe}. */
  constructor(bwrapPath: string, sharedDir: string) {
    this.bwrapPath = bwrapPath;
    this.sharedDir = sharedDir;
    this.owners = new Owners(sharedDir);
  }

  async probe(): Promise<Probe> {
    try {
      this.bwrap = prepareBwrap(this.bwrapPath, this.sharedDir, process.geteuid?.() === 0);
      this.filter = await installFilter(this.sharedDir);
    } catch (error) {
      return { works: false, why: `bubblewrap (${this.bwrapPath}) cannot be used: ${messageOf(error)}` };
    }
    const owner = this.owners.take(TRIAL);
    const [file, args, env] = this.command(owner, ['--ro-bind', '/', '/', '--', '/bin/true'], {}, {});
    const trial = await runQuietly(file, args, env);
    this.owners.giveBack(TRIAL);
    if (trial.ok) return { works: true };
    return { works: false, why: `bubblewrap does not work here: ${trial.message}. ${userNamespaceAdvice()}` };
  }

  create(creation: Creation): Promise<Handle> {
    return this.owners.lend(creation, (owner) => this.make(creation, owner));
  }

  private async make(creation: Creation, owner: number | null): Promise<Handle> {
    const { spec } = creation;
    refuseImage(this.name, spec);
    if (owner !== null) chownSync(creation.workspaceDir, owner, owner);
    const shown: [source: string, target: string, how: '--bind' | '--ro-bind'][] = [
      [creation.workspaceDir, WORKSPACE, '--bind'],
      [creation.controlDir, CONTROL, '--ro-bind'],
      ...etcFiles(this.sharedDir).map(([source, target]): [string, string, '--ro-bind'] => [
        source,
        target,
        '--ro-bind',
      ]),
      ...[...spec.binds, ...(creation.mounts ?? [])].map((mount: Mount): (typeof shown)[number] => [
        mount.source,
        mount.target,
        mount.writable ? '--bind' : '--ro-bind',
      ]),
    ];
    const missing = shown.find(([source]) => !existsSync(source));
    if (missing) throw new RolloutError('SandboxFailed', `${missing[0]} does not exist on this host`);
    const sources: Record<string, string> = {};
    const places = shown.map(([source]) => (owner === null ? source : this.place(source, creation, sources)));
    const args = [
      ...['--json-status-fd', '3'],
      ...systemFolders(),
      ...['--dir', '/etc', '--dir', '/var/tmp', '--proc', '/proc', '--dev', '/dev'],
      ...Object.entries(memoryFolders(spec)).flatMap(([folder, bytes]) => [
        ...['--size', String(bytes), '--tmpfs', folder],
      ]),
      ...['--remount-ro', '/dev'], // or what is made there would count nowhere
      ...shown.flatMap(([, target, how], index) => [how, places[index] as string, target]),
      ...['--remount-ro', '/', '--clearenv', '--hostname', 'sandbox', '--chdir', '/'],
      // Worth nothing in a user namespace, but nobody may trace a process that has more than he: an agent that
      // could end the first one would get another attempt for a bad one.
      ...['--cap-add', 'CAP_WAKE_ALARM'],
      ...['--', ...FIRST_PROCESS],
    ];
    const command = this.command(owner, args, sources, { [SANDBOX_VARIABLE]: creation.sandboxId });
    return start(creation, command, owner);
  }

  /**
   * Where bubblewrap finds `source` when it runs as another user: below a folder that is added to `sources`. As few
   * as can be, each costs milliseconds.
   */
  private place(source: string, { workspaceDir }: Creation, sources: Record<string, string>): string {
    if (AS_THEY_ARE.includes(source)) return source;
    const folders = { etc: path.join(this.sharedDir, 'etc'), own: path.dirname(workspaceDir) };
    for (const [name, folder] of Object.entries(folders)) {
      if (!source.startsWith(`${folder}/`)) continue;
      sources[name] = folder;
      return path.join('/tmp', name, path.relative(folder, source));
    }
    const name = `bind${Object.keys(sources).length}`;
    sources[name] = source;
    return `/tmp/${name}`;
  }

  enter(handle: Handle, program: Program): Entry {
    const argv = [
      this.filter,
      ...asUser(handle.ownerUid),
      ...enterNamespaces(handle as Sandbox),
      ...['/usr/bin/setpriv', ...withoutPrivileges(program), '--'],
      ...launch(program.argv, program.cwd, handle.spec.limits, SANDBOX_VARIABLE),
    ];
    const [file, ...args] = argv as [string, ...string[]];
    const env = programEnvironment(handle.spec, HOME, program.environment);
    return { file, args, env: { ...env, [SANDBOX_VARIABLE]: handle.sandboxId } };
  }

  examine(handle: Handle, argv: readonly string[]): Entry {
    return examineAs(handle as Sandbox, argv);
  }

  enterIpc(handle: Handle, argv: readonly string[]): Entry {
    return enterIpcOf(handle as Sandbox, argv);
  }

  processes(handle: Handle): ProcessInfo[] {
    return processesIn(handle as Sandbox);
  }

  killAll(handle: Handle): Promise<number> {
    return killAllIn(this, handle as Sandbox);
  }

  async destroy(handle: Handle): Promise<number> {
    const { first, outer } = handle as Sandbox;
    const ended = outer.exitCode !== null || outer.signalCode !== null;
    const count = ended ? 0 : countIn(handle as Sandbox) + 1;
    // The kernel kills a PID namespace with its first process and lets nobody reap that one before the rest.
    if (!ended) signal(first.pid, 'SIGKILL');
    outer.stdin?.destroy();
    await untilEnded(outer, handle.sandboxId);
    await (handle as Sandbox).bounded;
    this.owners.giveBack(handle.sandboxId);
    return count;
  }

  /** Runs bubblewrap with `args`; as another user, `owner`, it finds what `shown` names as /tmp/<name>. */
  private command(
    owner: number | null,
    args: string[],
    shown: Record<string, string>,
    marks: Record<string, string>,
  ): Command {
    if (!this.bwrap) throw new RolloutError('Internal', 'probe() comes before everything else');
    const bwrap = [
      ...['--unshare-all', '--unshare-user', '--die-with-parent', '--uid', '0', '--gid', '0', '--as-pid-1'],
      ...args,
    ];
    if (owner === null) return [this.bwrap.file, bwrap, marks];
    const inside = ['/usr/bin/env', 'LD_LIBRARY_PATH=/tmp/tools', '/tmp/tools/bwrap', ...bwrap];
    const sources = { tools: this.bwrap.folder, ...shown };
    const [file, ...argv] = staged(this.bwrap.stage, sources, owner, inside);
    return [file as string, argv, { PATH: SYSTEM_PATH, ...marks }];
  }
}

/** Starts bubblewrap and waits until the sandbox stands. */
async function start(
  creation: Creation,
  [file, argv, env]: Command,
  ownerUid: number | null,
): Promise<Handle> {
  // A process group of its own: the terminal's ^C is for the host, which ends sandboxes in order.
  const outer = spawn(file, argv, { env, detached: true, stdio: ['pipe', 'pipe', 'pipe', 'pipe'] });
  const { stdout, stderr } = outer;
  const status = outer.stdio[3] as Readable;
  let errors = '';
  let [pid, json] = [0, ''];
  stderr.on('data', (chunk: Buffer) => {
    errors = (errors + chunk).slice(-4096);
  });
  outer.stdin?.on('error', () => {}); // the sandbox ended first: `ended` tells
  const ended = new Promise<string>((resolve) => {
    outer.once('error', (error) => resolve(messageOf(error)));
    outer.once('close', (code, name) =>
      resolve(errors.trim() || `its first process ended (${name ?? code})`),
    );
  });
  const stands = new Promise<void>((resolve) => stdout.once('data', () => resolve()));
  // What is written first may be read last.
  const named = new Promise<void>((resolve) => {
    status.on('data', (chunk: Buffer) => {
      json += chunk;
      pid = Number(/"child-pid": *([0-9]+)[^0-9]/.exec(json)?.[1] ?? 0);
      if (pid > 0) resolve();
    });
  });
  // Before it stands its user namespace may have no users yet.
  const sealed = Promise.all([stands, named]).then(() => seal(pid, asUser(ownerUid)));
  const failure = await Promise.race([sealed, ended]);
  if (failure !== null) {
    outer.kill('SIGKILL');
    throw new RolloutError('SandboxFailed', `bubblewrap could not make a sandbox: ${failure}`);
  }
  for (const stream of [stdout, stderr, status]) stream.destroy();
  const [first, parent, namespace] = [processInfo(pid), processInfo(outer.pid ?? 0), pidNamespace(pid)];
  if (!first || !parent || !namespace) {
    outer.kill('SIGKILL');
    throw new RolloutError('SandboxFailed', `the sandbox ended at once: ${await ended}`);
  }
  // Not waited for: it takes longer to make more files than to have bounds for them.
  const bounded = boundFiles(pid, asUser(ownerUid), memoryFolders(creation.spec)).then((problem) => {
    if (problem === null) return;
    errors = problem;
    outer.kill('SIGKILL');
  });
  return {
    sandboxId: creation.sandboxId,
    workspace: WORKSPACE,
    control: CONTROL,
    spec: creation.spec,
    ownerUid,
    anchors: [first, parent],
    proc: `/proc/${pid}/root/proc`,
    memoryFolders: Object.keys(MEMORY_FOLDERS).map((folder) => `/proc/${pid}/root${folder}`),
    ended,
    outer,
    bounded,
    first,
    namespace,
  } as Sandbox;
}
