import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { type LimitHit, SandboxSpec } from '../../../contracts/sandbox.ts';
import type { Backend, Handle } from '../backends/backend.ts';
import { recordAnchors } from '../left-overs.ts';
import { limitOfStatus } from '../limits/signals.ts';
import { Supervisor } from '../limits/supervisor.ts';
import { removeTree } from '../remove-tree.ts';
import { Room } from '../room.ts';

/** How many there may be at once: each keeps a processor busy. */
const AT_ONCE = 4;
/** Bytes of memory of one. */
const MEMORY_BYTES = 1024 ** 3;
/** Bytes of standard error that are kept. */
const MAX_ERRORS = 4096;
/** Folder below which the shown folders are, each under its own name. */
const SHOWN = '/mnt';

/** A script for a sandbox of its own. */
export interface SideProgram {
  /** Whose files they are. */
  readonly besides: Pick<Handle, 'ownerUid'>;
  /** For bash; `$1` is the folder in which {@link shown} are, `$2` an empty one to write to, then {@link args}. */
  readonly script: string;
  readonly args: readonly string[];
  /** Folders of the host, all in the same one; each is seen under its own name. */
  readonly shown: readonly { readonly folder: string; readonly writable: boolean }[];
  /** Open file of the host to read from. */
  readonly stdin?: number;
  /** Open file of the host to write to, or who takes each part; false: enough. */
  readonly stdout: number | ((chunk: Buffer) => boolean);
  /** Bytes of any one file written. */
  readonly fileBytes: number;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** How it ended. */
export interface SideEnd {
  /** Null when it was killed: for a limit, for its time, or because its output was enough. */
  readonly exitCode: number | null;
  readonly stderr: string;
  readonly timedOut: boolean;
  readonly limit: LimitHit | null;
}

/**
 * Runs programs of the host over files that hostile code made, each in a fresh sandbox without that code: it can
 * neither reach into them nor had a hand in what they are.
 */
export class SideSandboxes {
  private readonly backend: Backend;
  private readonly folder: string;
  private readonly prefix: string;
  private readonly logger: Logger;
  private readonly room = new Room(AT_ONCE);

  /** `folder`: where sandboxes have theirs; ids begin with `prefix`. */
  constructor(parts: { backend: Backend; folder: string; prefix: string; logger: Logger }) {
    this.backend = parts.backend;
    this.folder = parts.folder;
    this.prefix = parts.prefix;
    this.logger = parts.logger;
  }

  /** Nothing is left of it when this resolves. @throws RolloutError SandboxFailed, or why `signal` was aborted */
  async run(program: SideProgram): Promise<SideEnd> {
    await this.room.enter(program.signal);
    const sandboxId = this.prefix + randomBytes(8).toString('hex');
    const folder = path.join(this.folder, sandboxId);
    let handle: Handle | undefined;
    try {
      program.signal.throwIfAborted();
      const [workspaceDir, controlDir] = [path.join(folder, 'workspace'), path.join(folder, 'control')];
      for (const each of [workspaceDir, controlDir]) await mkdir(each, { recursive: true });
      const mounts = program.shown.map(({ folder: source, writable }) => ({
        ...{ source, writable },
        target: path.join(SHOWN, path.basename(source)),
      }));
      const spec = SandboxSpec.parse({ limits: { memoryBytes: MEMORY_BYTES, fileBytes: program.fileBytes } });
      handle = await this.backend.create({
        ...{ sandboxId, workspaceDir, controlDir, spec, mounts, besides: program.besides },
        hostPrograms: true,
      });
      await recordAnchors(folder, handle.anchors);
      return await this.runIn(handle, workspaceDir, program);
    } finally {
      if (handle) await this.backend.destroy(handle);
      await removeTree(folder);
      this.room.leave();
    }
  }

  private async runIn(handle: Handle, workspaceDir: string, program: SideProgram): Promise<SideEnd> {
    const { backend, logger } = this;
    // Where files are not apart, the folders are where they are.
    const root = backend.guarantees.files ? SHOWN : path.dirname(program.shown[0]?.folder ?? '');
    const argv = ['/bin/bash', '--norc', '--noprofile', '-c', program.script, 'side', root, handle.workspace];
    const { file, args, env } = backend.enter(handle, {
      argv: [...argv, ...program.args],
      cwd: handle.workspace,
      environment: { LC_ALL: 'C' },
      overModes: program.shown.some(({ writable }) => writable) ? 'write' : 'read',
    });
    const supervisor = new Supervisor({ backend, handle, workspaceDir, shells: () => new Set(), logger });
    const finish = supervisor.begin();
    let timedOut = false;
    const stop = (): void => void backend.destroy(handle).catch(() => {}); // asked again at the end
    const timer = setTimeout(() => {
      timedOut = true;
      stop();
    }, program.timeoutMs);
    program.signal.addEventListener('abort', stop);
    try {
      const { stdout: target } = program;
      const child = spawn(file, args, {
        ...{ env, cwd: '/', detached: true },
        stdio: [program.stdin ?? 'ignore', typeof target === 'number' ? target : 'pipe', 'pipe'],
      });
      let stderr = '';
      (child.stderr as Readable).on('data', (chunk: Buffer) => {
        stderr = (stderr + chunk).slice(-MAX_ERRORS);
      });
      let enough = false;
      child.stdout?.on('data', (chunk: Buffer) => {
        if (enough || typeof target === 'number' || target(chunk)) return;
        enough = true;
        stop();
      });
      const [code] = (await once(child, 'close')) as [number | null];
      program.signal.throwIfAborted();
      const hit = finish();
      const killed = timedOut || enough || code === null;
      return {
        exitCode: killed ? null : code,
        stderr: stderr.trim(),
        timedOut,
        limit: enough ? 'output' : code === 0 ? null : (limitOfStatus(code) ?? hit),
      };
    } catch (error) {
      program.signal.throwIfAborted();
      throw new RolloutError('SandboxFailed', `beside the sandbox: ${messageOf(error)}`, { cause: error });
    } finally {
      clearTimeout(timer);
      program.signal.removeEventListener('abort', stop);
      supervisor.stop();
    }
  }
}
