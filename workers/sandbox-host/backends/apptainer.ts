import { chownSync, existsSync, mkdirSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import path from 'node:path';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { SandboxSpec, WORKSPACE } from '../../../contracts/sandbox.ts';
import { type ProcessInfo, SANDBOX_VARIABLE, signal } from '../processes.ts';
import { inNamesOfTheHost, withAdvice } from './apptainer-advice.ts';
import { findRuntime, type Runtime } from './apptainer-runtime.ts';
import {
  dropPrivileges,
  firstProcess,
  HELD,
  IMAGE_SETTINGS,
  NAMED,
  READ_IMAGE_SETTINGS,
  readSettings,
  SUPERVISE,
  TOOLS,
} from './apptainer-scripts.ts';
import {
  type ApptainerShared,
  hostFolders,
  writeApptainerShared,
  writeHostRoot,
} from './apptainer-shared.ts';
import { isAlive, type Started, startApptainer, untilGone } from './apptainer-start.ts';
import type { Backend, Creation, Entry, Handle, Mount, Probe, Program } from './backend.ts';
import { programEnvironment } from './environment.ts';
import { launch } from './launcher.ts';
import {
  countIn,
  enterIpcOf,
  enterNamespaces,
  examineAs,
  killAllIn,
  type Namespaced,
  processesIn,
  untilEnded,
} from './namespaces.ts';
import { Owners } from './owners.ts';
import { installFilter } from './seccomp/install.ts';
import { asUser, staged } from './staging.ts';
import { etcFiles } from './system-files.ts';
import { outputOf } from './wait.ts';

const CONTROL = '/run/rollout';
const HOME = '/root';

/** Files of /etc that show nothing of the host, whatever the image has there. The last loads code into the tools. */
const EMPTY_FILES = ['/etc/resolv.conf', '/etc/ld.so.preload'];

type Sandbox = Namespaced & Started & { readonly imageEnvironment: Readonly<Record<string, string>> };

/** What this backend needs to know of the machine. */
export interface ApptainerOptions {
  /** The program: apptainer, or singularity of SingularityCE. Empty: none was found. */
  readonly program: string;
  /** Image of sandboxes that name none; undefined: they show the host's own /usr. */
  readonly image: string | undefined;
  /** Folder for files that all sandboxes see; written by {@link ApptainerBackend.probe}. */
  readonly sharedDir: string;
}

/** Apptainer or SingularityCE, without root: images, and the same promises as bubblewrap. */
export class ApptainerBackend implements Backend {
  readonly name = 'apptainer';
  readonly guarantees = {
    network: true,
    files: true,
    processes: true,
    user: true,
    systemCalls: true,
    limits: 'memory, processes and disk of the whole sandbox by watching; the rest per process by rlimits',
  };
  private readonly owners: Owners;
  private readonly options: ApptainerOptions;
  private shared: ApptainerShared | undefined;
  /** What all programs are started by. */
  private filter = '';
  private runtime: Runtime | undefined;

  constructor(options: ApptainerOptions) {
    this.options = options;
    this.owners = new Owners(options.sharedDir);
  }

  async probe(): Promise<Probe> {
    const { program, sharedDir, image } = this.options;
    if (program === '') {
      const advice = 'install it (your distribution, or `module load apptainer`), or set sandbox.apptainer';
      return { works: false, why: `neither apptainer nor singularity is on PATH: ${advice}` };
    }
    try {
      this.shared = writeApptainerShared(sharedDir);
      this.filter = await installFilter(this.shared.tools);
      this.runtime = await findRuntime(program);
    } catch (error) {
      return { works: false, why: `apptainer (${program}) cannot be used: ${messageOf(error)}` };
    }
    if (image !== undefined && !existsSync(image)) {
      return { works: false, why: `the image ${image} does not exist: set sandbox.image` };
    }
    const probe = await this.trial();
    return probe.works ? { ...probe, found: `${this.runtime.version} (${program})` } : probe;
  }

  create(creation: Creation): Promise<Handle> {
    return this.owners.lend(creation, (owner) => this.make(creation, owner));
  }

  private async make(creation: Creation, ownerUid: number | null): Promise<Handle> {
    const { spec } = creation;
    const shared = this.ready();
    const folder = path.dirname(creation.workspaceDir);
    const [home, root] = [path.join(folder, 'runtime'), path.join(folder, 'root')];
    mkdirSync(home);
    if (ownerUid !== null) {
      for (const folder of [creation.workspaceDir, home]) chownSync(folder, ownerUid, ownerUid);
    }
    const image = creation.hostPrograms ? undefined : (spec.image ?? this.options.image);
    const mounts: Mount[] = [
      { source: creation.workspaceDir, target: WORKSPACE, writable: true },
      { source: creation.controlDir, target: CONTROL },
      { source: shared.tools, target: TOOLS },
      ...(image === undefined ? this.hostMounts() : []),
      ...EMPTY_FILES.map((target) => ({ source: shared.empty, target })),
      ...(image === undefined ? [] : [{ source: shared.emptyFolder, target: IMAGE_SETTINGS }]),
      ...spec.binds,
      ...(creation.mounts ?? []),
    ];
    if (image === undefined) writeHostRoot(root, ownerUid);
    const sources = [image ?? root, home, ...mounts.map(({ source }) => source)];
    const first = firstProcess(spec.limits.memoryBytes, HOME, image === undefined ? '' : IMAGE_SETTINGS);
    const argv = this.argv(ownerUid, sources, mounts, first);
    const started = await startApptainer(creation, argv, shared.depth).catch((error: unknown) => {
      throw inNamesOfTheHost(error, sources, ownerUid);
    });
    const seen = { sandboxId: creation.sandboxId, workspace: WORKSPACE, control: CONTROL, spec };
    const own = watched(started.first.pid);
    const sandbox: Sandbox = { ...started, ...seen, ownerUid, imageEnvironment: {}, ...own };
    return image === undefined ? sandbox : this.withImageEnvironment(sandbox);
  }

  /** Has the image's own scripts say what environment it sets; they are as little trusted as all that will run. */
  private async withImageEnvironment(sandbox: Sandbox): Promise<Sandbox> {
    const program = { argv: READ_IMAGE_SETTINGS, cwd: '/', environment: {} };
    try {
      return { ...sandbox, imageEnvironment: readSettings(await outputOf(this.enter(sandbox, program))) };
    } catch (error) {
      await this.destroy(sandbox);
      throw new RolloutError('SandboxFailed', `the image does not say its environment: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  enter(handle: Handle, program: Program): Entry {
    const { imageEnvironment, spec, tasksOutside } = handle as Sandbox;
    const environment = { ...imageEnvironment, ...spec.environment, ...program.environment };
    const all = programEnvironment(spec, HOME, environment);
    // What would load code into the programs on the way is set at its end.
    const late = Object.entries(all).filter(([name]) => LOADER_VARIABLE.test(name));
    const assignments = late.map(([name, value]) => `${name}=${value}`);
    const inner = late.length === 0 ? program.argv : ['/usr/bin/env', '--', ...assignments, ...program.argv];
    const limits = { ...spec.limits, processes: spec.limits.processes + tasksOutside };
    const [file, ...args] = [
      this.filter,
      ...asUser(handle.ownerUid),
      ...enterNamespaces(handle as Sandbox),
      ...dropPrivileges(program),
      ...launch(inner, program.cwd, limits, SANDBOX_VARIABLE),
    ];
    const env = Object.fromEntries(Object.entries(all).filter(([name]) => !LOADER_VARIABLE.test(name)));
    return { file: file as string, args, env: { ...env, [SANDBOX_VARIABLE]: handle.sandboxId } };
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
    const { first, outer, anchors } = handle as Sandbox;
    const ended = outer.exitCode !== null || outer.signalCode !== null;
    const count = ended ? 0 : countIn(handle as Sandbox) + 1;
    // The kernel kills a PID namespace with its first process; Apptainer then ends its helpers and itself.
    if (isAlive(first)) signal(first.pid, 'SIGKILL');
    outer.stdin?.destroy();
    await untilEnded(outer, handle.sandboxId);
    await untilGone(anchors, handle.sandboxId);
    this.owners.giveBack(handle.sandboxId);
    return count;
  }

  /** Makes a sandbox for real. */
  private async trial(): Promise<Probe> {
    const folder = mkdtempSync(path.join(this.options.sharedDir, 'trial-'));
    try {
      const [workspaceDir, controlDir] = [path.join(folder, 'workspace'), path.join(folder, 'control')];
      for (const each of [workspaceDir, controlDir]) mkdirSync(each);
      const spec = SandboxSpec.parse({});
      await this.destroy(
        await this.create({ sandboxId: path.basename(folder), workspaceDir, controlDir, spec }),
      );
      return { works: true };
    } catch (error) {
      return { works: false, why: `${this.runtime?.version}: ${withAdvice(messageOf(error))}` };
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }

  private ready(): ApptainerShared & Runtime {
    if (!this.shared || !this.runtime)
      throw new RolloutError('Internal', 'probe() comes before everything else');
    return { ...this.shared, ...this.runtime };
  }

  private hostMounts(): Mount[] {
    return [
      ...hostFolders().map((folder) => ({ source: folder, target: folder })),
      ...etcFiles(this.options.sharedDir).map(([source, target]) => ({ source, target })),
    ];
  }

  /**
   * The argv on the host that runs `argv` in a new sandbox. `sources`: image, home folder of the runtime, then those
   * of `mounts`. @throws RolloutError SandboxFailed
   */
  private argv(
    ownerUid: number | null,
    sources: readonly string[],
    mounts: readonly Mount[],
    argv: readonly string[],
  ): string[] {
    const { stage, asRoot, flags } = this.ready();
    const missing = sources.find((source) => !existsSync(source));
    if (missing !== undefined)
      throw new RolloutError('SandboxFailed', `${missing} does not exist on this host`);
    const seen = (index: number): string =>
      ownerUid === null ? (sources[index] as string) : `/tmp/${index}`;
    const apptainer = [
      ...['/usr/bin/env', `HOME=${seen(1)}`, `TMPDIR=${seen(1)}`, ...asRoot, this.options.program, 'exec'],
      ...[...flags, '--containall', '--no-home', '--cleanenv', '--no-init', '--no-eval'],
      ...['--net', '--network', 'none', '--uts', '--hostname', 'sandbox', '--writable-tmpfs'],
      ...['--no-mount', 'bind-paths,sys,cwd,hostfs'],
      ...mounts.flatMap(({ target, writable }, index) => [
        '--mount',
        [
          'type=bind',
          quoted('source', seen(index + 2)),
          quoted('destination', target),
          ...(writable ? [] : ['ro']),
        ].join(','),
      ]),
      ...[seen(0), ...argv],
    ];
    const supervised = ['/bin/bash', '--norc', '--noprofile', '-c', SUPERVISE, 'supervise', ...apptainer];
    if (ownerUid === null) return supervised;
    const names = ['/bin/sh', '-c', NAMED, 'named', String(ownerUid)];
    return staged(stage, Object.fromEntries(sources.entries()), ownerUid, supervised, names);
  }
}

/**
 * Where the host sees what the sandbox takes. The folder of the first process, /tmp, stands for all that is written
 * outside the workspace.
 */
function watched(first: number): Pick<Handle, 'proc' | 'memoryFolders'> {
  const [proc, shm, home] = [HELD.proc, HELD.shm, HELD.home].map((fd) => `/proc/${first}/fd/${fd}`);
  return {
    proc: proc as string,
    memoryFolders: [`/proc/${first}/cwd`, shm as string, home as string].filter(isInMemory),
  };
}

function isInMemory(folder: string): boolean {
  try {
    return statfsSync(folder).type === TMPFS_MAGIC;
  } catch {
    return false; // it has no such folder, or has just ended
  }
}

/** Of statfs(2). */
const TMPFS_MAGIC = 0x0102_1994;

/** Variables by which the dynamic loader takes in code or other rules. */
const LOADER_VARIABLE = /^(LD_|GLIBC_)/;

/** A field of --mount, which is read as CSV. */
function quoted(name: string, value: string): string {
  return `"${name}=${value.replaceAll('"', '""')}"`;
}
