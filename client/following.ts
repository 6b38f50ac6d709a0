import {
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  WorkflowUpdateFailedError,
} from '@temporalio/client';
import type { Workflow } from '@temporalio/common';
import { type RecordedSequence, recordedSequence } from '../activities/trajectory/assemble.ts';
import { sequencesOf } from '../activities/trajectory/sequences.ts';
import type { AttemptKey, TrajectoryStore } from '../activities/trajectory/store.ts';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import type { LedgerRecord } from '../contracts/ledger.ts';
import { LOOK_UPDATE, LOOKOUT, type LookInput } from '../contracts/look.ts';
import { WORKFLOW_QUEUE } from '../contracts/queues.ts';
import type { RolloutStatus } from '../contracts/signals.ts';
import { isDeadline, type RolloutClient } from './rollout-client.ts';

/** Milliseconds that a workflow worker, and then a host, may take to answer: whoever follows asks again. */
const WITHIN_MS = 5_000;
/** A host is asked again for the same attempt after so many milliseconds, however many follow it. */
const AGAIN_MS = 1_000;

/** What an open rollout has recorded so far. */
export interface SoFar {
  readonly status: RolloutStatus;
  readonly workflowRunId: string;
  readonly attempt: number;
  /** Ledger records; so many more than before are news. */
  readonly records: number;
  /** Its conversation, in the fields of a trajectory; made of the records when it is asked for. */
  sequences(): RecordedSequence[];
}

/** Reads what open rollouts have recorded so far: asked of the host where the agent works. */
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
   * The conversation of its present attempt, without a sequence if it has not begun to work; undefined once it has ended,
   * when its trajectory has all of it.
   * @throws WorkflowNotFoundError; RolloutError QueueTimeout, HostUnreachable if no workflow worker or not its host answers
   */
  async read(rolloutId: string): Promise<SoFar | undefined> {
    const { runId, status: state } = await this.#client.temporal.workflow.getHandle(rolloutId).describe();
    if (state.name !== 'RUNNING') return undefined;
    const status = await this.#within(
      () => this.#client.status(rolloutId),
      () => new RolloutError('QueueTimeout', 'no workflow worker answers'),
    );
    if (status.stage === 'ended') return undefined;
    const { attempt } = status;
    const key = { rolloutId, workflowRunId: runId, attempt };
    const records = await this.#recordsOf(key, status);
    const sequences = () => sequencesOf(records).map(recordedSequence);
    return { status, workflowRunId: runId, attempt, records: records.length, sequences };
  }

  async #recordsOf(key: AttemptKey, { stage, host }: RolloutStatus): Promise<LedgerRecord[]> {
    if (host !== null && (stage === 'run' || stage === 'paused')) await this.#askHost({ host, ...key });
    else if (stage !== 'init' && stage !== 'queued') {
      // Its host has handed over what it had.
      const ledger = await this.#store.getLedger(key);
      if (ledger) return ledger;
    }
    return this.#store.getSoFar(key);
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
    const silent = (why = '') =>
      new RolloutError('HostUnreachable', `host ${input.host} does not answer${why}`);
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
      throw silent(`: ${messageOf(error.cause?.cause ?? error.cause)}`);
    }
  }

  async #within<R>(asking: () => Promise<R>, silent: () => RolloutError): Promise<R> {
    try {
      return await this.#client.temporal.connection.withDeadline(Date.now() + WITHIN_MS, asking);
    } catch (error) {
      if (isDeadline(error)) throw silent();
      throw error;
    }
  }
}
