import {
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  WorkflowUpdateFailedError,
} from '@temporalio/client';
import type { Workflow } from '@temporalio/common';
import type { AttemptKey, TrajectoryStore } from '../activities/trajectory/store.ts';
import { isDeadline, type RolloutClient } from '../client/rollout-client.ts';
import { messageOf } from '../contracts/failures.ts';
import type { LedgerRecord } from '../contracts/ledger.ts';
import { LOOK_UPDATE, LOOKOUT, type LookInput } from '../contracts/look.ts';
import { WORKFLOW_QUEUE } from '../contracts/queues.ts';
import type { RolloutStatus } from '../contracts/signals.ts';
import { HttpProblem } from './problems.ts';

/** Milliseconds that a workflow worker, and then a host, may take to answer: whoever follows asks again. */
const WITHIN_MS = 5_000;
/** A host is asked again for the same attempt after so many milliseconds, however many follow it. */
const AGAIN_MS = 1_000;

/** What an open rollout has recorded so far, asked of the host where its agent works. */
export class Following {
  readonly #client: RolloutClient;
  readonly #store: TrajectoryStore;
  /** Attempts that somebody follows, and the last asking after each. */
  readonly #asked = new Map<string, Promise<void>>();

  constructor(client: RolloutClient, store: TrajectoryStore) {
    this.#client = client;
    this.#store = store;
  }

  /**
   * The records of its present attempt, none if it has not begun to work.
   * @throws HttpProblem 409 once it has ended, 503 if no workflow worker or not its host answers; WorkflowNotFoundError
   */
  async read(rolloutId: string): Promise<{ key: AttemptKey; records: LedgerRecord[] }> {
    const { runId, status: state } = await this.#client.temporal.workflow.getHandle(rolloutId).describe();
    const status = state.name === 'RUNNING' ? await this.#statusOf(rolloutId) : null;
    if (status === null || status.stage === 'ended') {
      throw new HttpProblem(409, `rollout ${rolloutId} has ended: its trajectory has all of it`);
    }
    const { stage, host, attempt } = status;
    const key = { rolloutId, workflowRunId: runId, attempt };
    if (host !== null && (stage === 'run' || stage === 'paused')) await this.#askHost({ host, ...key });
    else if (stage !== 'init' && stage !== 'queued') {
      // Its host has handed over what it had.
      const ledger = await this.#store.getLedger(key);
      if (ledger) return { key, records: ledger };
    }
    return { key, records: await this.#store.getSoFar(key) };
  }

  async #statusOf(rolloutId: string): Promise<RolloutStatus> {
    return this.#within(() => this.#client.status(rolloutId), 'no workflow worker answers');
  }

  /** One asking for all who follow, and no other soon after it. */
  #askHost(input: LookInput): Promise<void> {
    const name = JSON.stringify(input);
    const before = this.#asked.get(name);
    if (before) return before;
    const asking = this.#look(input);
    this.#asked.set(name, asking);
    const forget = () => setTimeout(() => this.#asked.delete(name), AGAIN_MS).unref();
    asking.then(forget, forget);
    return asking;
  }

  async #look(input: LookInput): Promise<void> {
    const silent = `host ${input.host} does not answer`;
    try {
      await this.#within(
        () =>
          this.#client.temporal.workflow.executeUpdateWithStart<Workflow, void, [LookInput]>(LOOK_UPDATE, {
            args: [input],
            startWorkflowOperation: new WithStartWorkflowOperation(LOOKOUT, {
              workflowId: LOOKOUT,
              taskQueue: WORKFLOW_QUEUE,
              workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
            }),
          }),
        silent,
      );
    } catch (error) {
      if (!(error instanceof WorkflowUpdateFailedError)) throw error;
      throw new HttpProblem(503, `${silent}: ${messageOf(error.cause?.cause ?? error.cause)}`);
    }
  }

  async #within<R>(asking: () => Promise<R>, silent: string): Promise<R> {
    try {
      return await this.#client.temporal.connection.withDeadline(Date.now() + WITHIN_MS, asking);
    } catch (error) {
      if (isDeadline(error)) throw new HttpProblem(503, silent);
      throw error;
    }
  }
}
