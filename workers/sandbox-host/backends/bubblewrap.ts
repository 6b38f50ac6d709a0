import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, existsSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { WORKSPACE } from '../../../contracts/sandbox.ts';
import {
  type ProcessInfo,
  pidNamespace,
  processIds,
  processInfo,
  SANDBOX_VARIABLE,
  signal,
} from '../processes.ts';
import type { Backend, Creation, Entry, Handle, Probe, Program } from './backend.ts';
import { type BwrapProgram, prepareBwrap } from './bwrap-program.ts';
import { programEnvironment } from './environment.ts';
import { CLOSE_DESCRIPTORS, launch } from './launcher.ts';
import { refuseImage } from './no-images.ts';
import { etcFiles, systemFolders } from './system-files.ts';
import { userNamespaceAdvice } from './user-namespaces.ts';
import { runQuietly, untilDead } from './wait.ts';

/**
 * Owner of the sandboxes of a host that runs as root. As root itself, a process inside could still write
 * what root owns and no namespace covers: most of /proc/sys, the modes of device nodes.
 */
const UNPRIVILEGED_ID = 65_534;

const CONTROL = '/run/rollout';
const HOME = '/root';

/** What lies in memory, and how much of the sandbox's memory each may take: some is left for processes. */
const MEMORY_FOLDERS = { '/tmp': 1 / 2, [HOME]: 1 / 8, '/dev/shm': 1 / 8 };

/**
 * First process of a sandbox: says that everything is mounted, lets go of all that it has of the host but
 * its stdin, and lives as long as the host holds that. What runs in the sandbox can reach into it.
 */
const FIRST_PROCESS = [
  ...['/bin/bash', '--norc', '--noprofile', '-c'],
  `${CLOSE_DESCRIPTORS}; echo ready; exec >/dev/null 2>&1; read -r _`,
];

/** In a mount namespace of its own, as root, shows `$3…` (pairs of source and name) as /tmp/<name>. */
const STAGE = `
set -e
stage=$1; shift
mount -t tmpfs -o mode=755 stage "$stage"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir "$stage/$2"; else : > "$stage/$2"; fi
  mount --rbind "$1" "$stage/$2"
  shift 2
done
shift
mount --rbind "$stage" /tmp
exec "$@"`;

interface Sandbox extends Handle {
  readonly outer: ChildProcess;
  readonly first: ProcessInfo;
  readonly namespace: string;
}

/** Namespaces of the kernel by way of bubblewrap: no root needed, about 10 ms to start. */
export class BubblewrapBackend implements Backend {
  readonly name = 'bubblewrap';
  readonly guarantees = {
    network: true,
    files: true,
    processes: true,
    user: true,
    limits: 'memory, processes and disk of the whole sandbox by watching; the rest per process by rlimits',
  };
  readonly ownerUid = process.geteuid?.() === 0 ? UNPRIVILEGED_ID : null;
  private readonly bwrapPath: string;
  private readonly sharedDir: string;
  private bwrap: BwrapProgram | undefined;

  /** `sharedDir` holds files that all sandboxes see; it is written by {@link probe}. */
  constructor(bwrapPath: string, sharedDir: string) {
    this.bwrapPath = bwrapPath;
    this.sharedDir = sharedDir;
  }

  async probe(): Promise<Probe> {
    try {
      this.bwrap = prepareBwrap(this.bwrapPath, this.sharedDir, this.ownerUid !== null);
    } catch (error) {
      return { works: false, why: `bubblewrap (${this.bwrapPath}) cannot be used: ${messageOf(error)}` };
    }
    const [file, args, env] = this.command(['--ro-bind', '/', '/', '--', '/bin/true'], [], {});
    const trial = await runQuietly(file, args, env);
    if (trial.ok) return { works: true };
    return { works: false, why: `bubblewrap does not work here: ${trial.message}. ${userNamespaceAdvice()}` };
  }

  async create(creation: Creation): Promise<Handle> {
    const { spec } = creation;
    refuseImage(this.name, spec);
    if (this.ownerUid !== null) chownSync(creation.workspaceDir, this.ownerUid, this.ownerUid);
    const shown: [source: string, target: string, how: '--bind' | '--ro-bind'][] = [
      [creation.workspaceDir, WORKSPACE, '--bind'],
      [creation.controlDir, CONTROL, '--ro-bind'],
      ...etcFiles(this.sharedDir).map(([source, target]): [string, string, '--ro-bind'] => [
        source,
        target,
        '--ro-bind',
      ]),
      ...spec.binds.map(({ source, target }): [string, string, '--ro-bind'] => [source, target, '--ro-bind']),
    ];
    const missing = shown.find(([source]) => !existsSync(source));
    if (missing) throw new RolloutError('SandboxFailed', `${missing[0]} does not exist on this host`);
    const staged = this.ownerUid === null ? [] : shown.map(([source], index) => [source, `${index}`]);
    const args = [
      ...['--json-status-fd', '3'],
      ...systemFolders(),
      ...['--dir', '/etc', '--dir', '/var/tmp', '--proc', '/proc', '--dev', '/dev'],
      ...Object.entries(MEMORY_FOLDERS).flatMap(([folder, share]) => [
        ...['--size', String(Math.ceil(spec.limits.memoryBytes * share)), '--tmpfs', folder],
      ]),
      ...['--remount-ro', '/dev'], // or what is made there would count nowhere
      ...shown.flatMap(([source, target, how], index) => [
        how,
        staged[index] ? `/tmp/${index}` : source,
        target,
      ]),
      ...['--remount-ro', '/', '--clearenv', '--hostname', 'sandbox', '--chdir', '/'],
      ...['--', ...FIRST_PROCESS],
    ];
    const [file, argv, env] = this.command(args, staged.flat(), { [SANDBOX_VARIABLE]: creation.sandboxId });
    return start(creation, file, argv, env);
  }

  enter(handle: Handle, program: Program): Entry {
    const { first } = handle as Sandbox;
    // Its id may have been given to another process since.
    if (processInfo(first.pid)?.startTicks !== first.startTicks) {
      throw new RolloutError('SandboxLost', `sandbox ${handle.sandboxId} has ended`);
    }
    const argv = [
      ...this.asOwner(),
      ...['/usr/bin/nsenter', '-t', String(first.pid), '-U', '-m', '-p', '-n', '-i', '-u'],
      ...['--preserve-credentials', '--'],
      ...['/usr/bin/setpriv', '--no-new-privs', '--bounding-set=-all', '--inh-caps=-all'],
      ...launch(program.argv, program.cwd, handle.spec.limits),
    ];
    const [file, ...args] = argv as [string, ...string[]];
    return { file, args, env: programEnvironment(handle.spec, HOME, program.environment) };
  }

  /** In the sandbox's user namespace, where nothing of its owner's is unreadable, and else as on the host. */
  examine(handle: Handle, argv: readonly string[]): Entry {
    const { first } = handle as Sandbox;
    const enter = ['/usr/bin/nsenter', '-t', String(first.pid), '-U', '--preserve-credentials', '--'];
    const [file, ...args] = this.ownerUid === null ? [...enter, ...argv] : argv;
    return { file: file as string, args, env: {} };
  }

  processes(handle: Handle): ProcessInfo[] {
    const { first, namespace } = handle as Sandbox;
    return processIds()
      .filter((pid) => pid !== first.pid && pidNamespace(pid) === namespace)
      .map((pid) => processInfo(pid))
      .filter((info) => info !== null && !info.zombie) as ProcessInfo[];
  }

  async killAll(handle: Handle): Promise<number> {
    const before = this.processes(handle).length;
    const deadline = performance.now() + 5000;
    for (;;) {
      // kill(-1) from inside is atomic, so that nothing forks away from it.
      const { file, args, env } = this.enter(handle, {
        argv: ['/bin/bash', '-c', 'kill -KILL -1'],
        cwd: '/',
        environment: {},
      });
      await runQuietly(file, args, env);
      if (this.processes(handle).length === 0) return before;
      if (performance.now() > deadline) {
        throw new RolloutError('SandboxFailed', `processes of sandbox ${handle.sandboxId} do not die`);
      }
    }
  }

  async destroy(handle: Handle): Promise<number> {
    const { first, outer } = handle as Sandbox;
    if (outer.exitCode !== null || outer.signalCode !== null) return 0;
    const count = this.processes(handle).length + 1;
    // The kernel kills a PID namespace with its first process and lets nobody reap that one before the rest.
    signal(first.pid, 'SIGKILL');
    outer.stdin?.destroy();
    await untilDead(outer, `sandbox ${handle.sandboxId}`);
    return count;
  }

  /** Runs bubblewrap with `args`; `staged` are pairs of source and name, shown as /tmp/<name> to bubblewrap. */
  private command(
    args: string[],
    staged: string[],
    marks: Record<string, string>,
  ): [string, string[], Record<string, string>] {
    if (!this.bwrap) throw new RolloutError('Internal', 'probe() comes before everything else');
    const bwrap = [
      ...['--unshare-all', '--unshare-user', '--die-with-parent', '--uid', '0', '--gid', '0', '--as-pid-1'],
      ...args,
    ];
    if (this.ownerUid === null) return [this.bwrap.file, bwrap, marks];
    const argv = [
      ...['--mount', '--propagation', 'private', '--', '/bin/sh', '-c', STAGE, 'stage'],
      ...[this.bwrap.stage, this.bwrap.folder, 'tools', ...staged, '--', ...this.asOwner()],
      ...['/usr/bin/env', 'LD_LIBRARY_PATH=/tmp/tools', '/tmp/tools/bwrap', ...bwrap],
    ];
    return ['/usr/bin/unshare', argv, { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', ...marks }];
  }

  private asOwner(): string[] {
    if (this.ownerUid === null) return [];
    return [
      '/usr/bin/setpriv',
      `--reuid=${this.ownerUid}`,
      `--regid=${this.ownerUid}`,
      '--clear-groups',
      '--',
    ];
  }
}

/** Starts bubblewrap and waits until the sandbox stands. */
async function start(
  creation: Creation,
  file: string,
  argv: string[],
  env: Record<string, string>,
): Promise<Handle> {
  // A process group of its own: the terminal's ^C is for the host, which ends sandboxes in order.
  const outer = spawn(file, argv, { env, detached: true, stdio: ['pipe', 'pipe', 'pipe', 'pipe'] });
  const [, stdout, stderr, status] = outer.stdio;
  let errors = '';
  let json = '';
  stderr?.on('data', (chunk: Buffer) => {
    errors = (errors + chunk).slice(-4096);
  });
  (status as NodeJS.ReadableStream).on('data', (chunk: Buffer) => {
    json += chunk;
  });
  outer.stdin?.on('error', () => {}); // the sandbox ended first: `ended` tells
  const ended = new Promise<string>((resolve) => {
    outer.once('error', (error) => resolve(messageOf(error)));
    outer.once('close', (code, name) =>
      resolve(errors.trim() || `its first process ended (${name ?? code})`),
    );
  });
  const ready = new Promise<void>((resolve) => stdout?.once('data', () => resolve()));
  const failure = await Promise.race([ready, ended]);
  if (failure !== undefined) {
    throw new RolloutError('SandboxFailed', `bubblewrap could not make a sandbox: ${failure}`);
  }
  for (const stream of [stdout, stderr, status]) (stream as Readable | null)?.destroy();
  const pid = Number(/"child-pid": *([0-9]+)/.exec(json)?.[1]);
  const [first, parent, namespace] = [processInfo(pid), processInfo(outer.pid ?? 0), pidNamespace(pid)];
  if (!first || !parent || !namespace) {
    outer.kill('SIGKILL');
    throw new RolloutError('SandboxFailed', `the sandbox ended at once: ${await ended}`);
  }
  return {
    sandboxId: creation.sandboxId,
    workspace: WORKSPACE,
    control: CONTROL,
    spec: creation.spec,
    anchors: [first, parent],
    root: `/proc/${pid}/root`,
    memoryFolders: Object.keys(MEMORY_FOLDERS),
    ended,
    outer,
    first,
    namespace,
  } as Sandbox;
}
