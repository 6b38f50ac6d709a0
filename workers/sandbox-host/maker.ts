import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { type CreateSandbox, SandboxSpec } from '../../contracts/sandbox.ts';
import type { Backend, Handle } from './backends/backend.ts';
import { NoBackend } from './backends/none.ts';
import type { AttemptId } from './ledger/attempts.ts';
import { Ledger } from './ledger/ledger.ts';
import { recordAnchors, recordRollout } from './left-overs.ts';
import type { SandboxHostOptions } from './options.ts';
import { type HostPaths, sandboxPrefix } from './paths.ts';
import type { ProcessInfo } from './processes.ts';
import { removeTree } from './remove-tree.ts';
import { Sandbox } from './sandbox.ts';
import { SideSandboxes } from './workspace/side-sandbox.ts';

/** Makes sandboxes: their folders, what runs in them, their ledger. */
export class SandboxMaker {
  private readonly options: SandboxHostOptions;
  private readonly paths: HostPaths;
  private readonly backend: Backend;
  private readonly none = new NoBackend();
  private readonly side: SideSandboxes;

  constructor(options: SandboxHostOptions, paths: HostPaths, backend: Backend) {
    this.options = options;
    this.paths = paths;
    this.backend = backend;
    const prefix = sandboxPrefix(paths.root);
    this.side = new SideSandboxes({ backend, folder: paths.sandboxes, prefix, logger: options.logger });
  }

  /**
   * Without a file for the ledger, what is recorded goes with the sandbox.
   * @throws RolloutError SandboxFailed, LedgerFailed; nothing is left then
   */
  async make(request: CreateSandbox, attempt: AttemptId, ledgerFile?: string): Promise<Sandbox> {
    const { host, logger } = this.options;
    const { rolloutId, batchId, groupId } = request;
    const sandboxId = sandboxPrefix(this.paths.root) + randomBytes(8).toString('hex');
    const folder = path.join(this.paths.sandboxes, sandboxId);
    const [workspaceDir, controlDir] = [path.join(folder, 'workspace'), path.join(folder, 'control')];
    const backend = request.spec ? this.backend : this.none;
    let handle: Handle | undefined;
    // Both wait, one for the disk and one for processes.
    const opening = mkdir(folder, { recursive: true }).then(() =>
      Ledger.open(ledgerFile ?? path.join(folder, 'ledger.jsonl')),
    );
    try {
      for (const each of [workspaceDir, controlDir]) await mkdir(each, { recursive: true });
      recordRollout(folder, rolloutId);
      const started = (process: ProcessInfo) => recordAnchors(folder, [process]);
      const spec = request.spec ?? SandboxSpec.parse({});
      handle = await backend.create({ sandboxId, workspaceDir, controlDir, spec, started });
      recordAnchors(folder, handle.anchors);
      const ledger = await opening;
      const { side } = this;
      const parts = { rolloutId, batchId, groupId, attempt, host, backend, handle, ledger, side, logger };
      return new Sandbox({ ...parts, folder, workspaceDir, controlDir });
    } catch (error) {
      if (handle) await backend.destroy(handle);
      await opening.then((ledger) => ledger.close()).catch(() => {}); // then it is the error
      await removeTree(folder);
      if (error instanceof RolloutError) throw error;
      throw new RolloutError('SandboxFailed', messageOf(error), { cause: error });
    }
  }
}
