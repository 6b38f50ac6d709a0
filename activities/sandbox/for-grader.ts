import { randomUUID } from 'node:crypto';
import { type CreateSandbox, SandboxSpec } from '../../contracts/sandbox.ts';
import { type BoundSandbox, bindSandbox } from './bound.ts';
import type { SandboxClient } from './client.ts';

/** Sandboxes of one grader at once: fewer than hosts have places, so that one which hangs in all of them leaves some. */
export const LANES = 3;

/** Fresh sandboxes for one grader: made when it asks, gone when it is done. */
export class GraderSandboxes {
  private readonly client: () => Promise<SandboxClient>;
  private readonly owner: Pick<CreateSandbox, 'rolloutId' | 'workflowRunId' | 'attempt'>;
  private readonly usual: Partial<SandboxSpec>;
  private readonly signal: AbortSignal;
  private readonly made = new Set<string>();
  private readonly session = randomUUID();
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

  /**
   * A sandbox that stays until it is asked for again, or the grade is there.
   * @throws RolloutError HostUnreachable where eval workers have no sandbox host beside them, SandboxFailed
   */
  async make(asked?: Partial<SandboxSpec>): Promise<BoundSandbox> {
    return (await this.makeIn(0, asked)).sandbox;
  }

  /**
   * Does `work` for each item in a fresh sandbox, which ends with it; so many at once. The results are in the order of
   * the items. After one for which `enough` says so, no more are begun, and their results are missing.
   * @throws the first error of any
   */
  async each<I, R>(
    items: readonly I[],
    work: (sandbox: BoundSandbox, item: I) => Promise<R>,
    { spec, atOnce = LANES, enough = () => false }: EachOptions<R> = {},
  ): Promise<R[]> {
    const results: R[] = [];
    let next = 0;
    let over = false;
    const lane = async (number: number): Promise<void> => {
      for (let index = next++; index < items.length && !over; index = next++) {
        const { sandbox, sandboxId } = await this.makeIn(number, spec);
        // Given back before the next is waited for: graders that wait hold nothing.
        const result = await work(sandbox, items[index] as I).finally(() => this.end(sandboxId));
        results[index] = result;
        over ||= enough(result);
      }
    };
    const lanes = Array.from({ length: Math.min(atOnce, items.length) }, (_, index) => lane(index + 1));
    const ends = await Promise.allSettled(
      lanes.map((running) =>
        running.catch((error) => {
          over = true;
          throw error;
        }),
      ),
    );
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
    return results.filter((_, index) => index in results);
  }

  async release(): Promise<void> {
    this.over = true;
    await Promise.all([...this.made].map((sandboxId) => this.end(sandboxId)));
  }

  private async makeIn(lane: number, asked: Partial<SandboxSpec> | undefined) {
    const spec = SandboxSpec.parse(asked ?? this.usual);
    const client = await this.client();
    const { owner, session, signal } = this;
    const info = await client.create({ ...owner, purpose: 'grader', lane, session, spec }, signal);
    this.made.add(info.sandboxId);
    // A grader that was left because it took too long gets no more.
    if (this.over) await this.release();
    return { sandbox: bindSandbox(client, info, signal), sandboxId: info.sandboxId };
  }

  private async end(sandboxId: string): Promise<void> {
    const client = await this.client();
    await client.release(sandboxId);
    this.made.delete(sandboxId);
  }
}

/** How {@link GraderSandboxes.each} goes on. */
export interface EachOptions<R> {
  /** Without it, sandboxes are made as the agent's was. */
  readonly spec?: Partial<SandboxSpec>;
  /** 3 if absent; the host's room for graders is the other bound. */
  readonly atOnce?: number;
  enough?(result: R): boolean;
}
