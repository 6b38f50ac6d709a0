import { type CreateSandbox, SandboxSpec } from '../../contracts/sandbox.ts';
import { type BoundSandbox, bindSandbox } from './bound.ts';
import type { SandboxClient } from './client.ts';

/** Fresh sandboxes for one grader: made when it asks, gone when it is done. */
export class GraderSandboxes {
  private readonly client: () => Promise<SandboxClient>;
  private readonly owner: Pick<CreateSandbox, 'rolloutId' | 'workflowRunId' | 'attempt'>;
  private readonly usual: Partial<SandboxSpec>;
  private readonly signal: AbortSignal;
  private readonly made: string[] = [];
  private over = false;

  /** `usual`: the spec of one that is asked for without. */
  constructor(
    client: SandboxClient | (() => Promise<SandboxClient>),
    owner: Pick<CreateSandbox, 'rolloutId' | 'workflowRunId' | 'attempt'>,
    usual: Partial<SandboxSpec>,
    signal: AbortSignal,
  ) {
    this.client = typeof client === 'function' ? client : async () => client;
    this.owner = owner;
    this.usual = usual;
    this.signal = signal;
  }

  /** @throws RolloutError HostUnreachable where eval workers have no sandbox host beside them, SandboxFailed */
  async make(asked?: Partial<SandboxSpec>): Promise<BoundSandbox> {
    const spec = SandboxSpec.parse(asked ?? this.usual);
    const client = await this.client();
    const info = await client.create({ ...this.owner, purpose: 'grader', spec }, this.signal);
    this.made.push(info.sandboxId);
    // A grader that was left because it took too long gets no more.
    if (this.over) await this.release();
    return bindSandbox(client, info, this.signal);
  }

  async release(): Promise<void> {
    this.over = true;
    if (this.made.length === 0) return;
    const client = await this.client();
    await Promise.all(this.made.map((sandboxId) => client.release(sandboxId)));
  }
}
