import { RolloutError } from '../../../contracts/failures.ts';
import type { Backend, Creation, Entry, Handle, Probe } from './backend.ts';

/** For tasks that run nothing: they have a ledger, fences and a watch like all others, and no process. */
export class NoBackend implements Backend {
  readonly name = 'none';
  readonly guarantees = {
    ...{ network: true, files: true, processes: true, user: true, systemCalls: true },
    limits: 'nothing runs',
  };

  async probe(): Promise<Probe> {
    return { works: true };
  }

  async create({ sandboxId, workspaceDir, controlDir, spec }: Creation): Promise<Handle> {
    const ended = new Promise<string>(() => {}); // nothing in it can end
    const seen = { workspace: workspaceDir, control: controlDir };
    return { sandboxId, ...seen, spec, ownerUid: null, anchors: [], ended };
  }

  enter(): Entry {
    throw new RolloutError('HandlerFailed', 'the task has no sandbox: its handler’s `sandbox` returns null');
  }

  processes(): [] {
    return [];
  }

  async killAll(): Promise<number> {
    return 0;
  }

  async destroy(): Promise<number> {
    return 0;
  }
}
