import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { temporaryFolder } from '../paths.ts';
import { type ProcessInfo, processesOf, processInfo, SANDBOX_VARIABLE, signal } from '../processes.ts';
import { removeTree } from '../remove-tree.ts';
import type { Backend, Creation, Entry, Handle, Probe, Program } from './backend.ts';
import { programEnvironment } from './environment.ts';
import { launch } from './launcher.ts';
import { refuseImage } from './no-images.ts';
import { untilDead } from './wait.ts';

/** First process: lives as long as the host holds its stdin. Killing the rest then is the reaper's. */
const FIRST_PROCESS = 'echo ready; read -r _';

interface Group extends Handle {
  readonly outer: ChildProcess;
}

/**
 * Plain processes of the host in a folder of their own: **no isolation at all**, for development only. What
 * runs here can read and change all that the host's user can; a process that drops its environment is lost
 * from sight.
 */
export class ProcessBackend implements Backend {
  readonly name = 'process';
  readonly guarantees = {
    network: false,
    files: false,
    processes: false,
    user: false,
    systemCalls: false,
    limits: 'rlimits per process',
  };

  async probe(): Promise<Probe> {
    return { works: true };
  }

  async create(creation: Creation): Promise<Handle> {
    refuseImage(this.name, creation.spec);
    const elsewhere = creation.spec.binds.find(({ source, target }) => source !== target);
    if (elsewhere) {
      const why = `the process backend shows the host as it is: it cannot show ${elsewhere.source} elsewhere`;
      throw new RolloutError('SandboxFailed', why);
    }
    mkdirSync(temporaryFolder(creation.sandboxId), { mode: 0o700 });
    const args = ['--norc', '--noprofile', '-c', FIRST_PROCESS];
    const env = { PATH: '/usr/bin:/bin' };
    const outer = spawn('/bin/bash', args, { env, detached: true, stdio: ['pipe', 'pipe', 'ignore'] });
    outer.stdin.on('error', () => {}); // it ended first: `ended` tells
    const ended = once(outer, 'exit').then(
      ([code, name]) => `its first process ended (${name ?? code})`,
      (error: unknown) => messageOf(error),
    );
    const failure = await Promise.race([once(outer.stdout, 'data').then(() => undefined), ended]);
    const first = processInfo(outer.pid ?? 0);
    if (failure !== undefined || !first) {
      throw new RolloutError('SandboxFailed', `bash could not be started: ${failure ?? 'it ended'}`);
    }
    return {
      sandboxId: creation.sandboxId,
      workspace: creation.workspaceDir,
      control: creation.controlDir,
      spec: creation.spec,
      ownerUid: null,
      anchors: [first],
      ended,
      outer,
    } as Group;
  }

  enter(handle: Handle, program: Program): Entry {
    // RLIMIT_NPROC would count all processes of the host's user, so it stays as it is.
    const [file, ...args] = launch(program.argv, program.cwd, { ...handle.spec.limits, processes: null });
    const { sandboxId, spec, workspace } = handle;
    const own = { TMPDIR: temporaryFolder(sandboxId), ...spec.environment, ...program.environment };
    const env = programEnvironment(spec, workspace, own);
    return { file: file as string, args, env: { ...env, [SANDBOX_VARIABLE]: sandboxId } };
  }

  processes(handle: Handle): ProcessInfo[] {
    return processesOf(handle.sandboxId);
  }

  async killAll(handle: Handle): Promise<number> {
    const killed = new Set<number>();
    const deadline = performance.now() + 5000;
    for (let left = this.processes(handle); left.length > 0; left = this.processes(handle)) {
      if (performance.now() > deadline) {
        throw new RolloutError('SandboxFailed', `processes of sandbox ${handle.sandboxId} do not die`);
      }
      for (const { pid } of left) {
        killed.add(pid);
        signal(pid, 'SIGKILL');
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return killed.size;
  }

  async destroy(handle: Handle): Promise<number> {
    const { outer } = handle as Group;
    const killed = await this.killAll(handle);
    const ended = outer.exitCode !== null || outer.signalCode !== null;
    outer.kill('SIGKILL');
    await untilDead(outer, `sandbox ${handle.sandboxId}`);
    await removeTree(temporaryFolder(handle.sandboxId));
    return ended ? killed : killed + 1;
  }
}
