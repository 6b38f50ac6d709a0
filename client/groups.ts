import {
  type Client,
  WorkflowExecutionAlreadyStartedError,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
  WorkflowNotFoundError,
} from '@temporalio/client';
import type { GroupStore } from '../activities/groups/group-store.ts';
import { priorityOf } from '../activities/start-rollout.ts';
import {
  BATCH_EVENTS_QUERY,
  BATCH_STATUS_QUERY,
  BATCH_WORKFLOW,
  type BatchEvent,
  type BatchInput,
  type BatchResult,
  type BatchStatus,
  batchWorkflowId,
} from '../contracts/batch.ts';
import { RolloutError } from '../contracts/failures.ts';
import {
  GROUP_STATUS_QUERY,
  GROUP_WORKFLOW,
  type GroupInput,
  type GroupResult,
  type GroupStatus,
  groupWorkflowId,
} from '../contracts/group.ts';
import { WORKFLOW_QUEUE } from '../contracts/queues.ts';
import type { CancelReason } from '../contracts/request.ts';
import { CANCEL_SIGNAL, type CancelSignal, PAUSE, RESUME } from '../contracts/signals.ts';

/** How often a waiting caller's question is asked again, in milliseconds. */
const ASK_EVERY_MS = 500;

/** A batch as a list shows it. */
export interface BatchListing {
  readonly batchId: string;
  /** Temporal's own state of the workflow. */
  readonly workflowState: string;
  readonly startedAt: string;
  readonly closedAt: string | null;
}

/**
 * Groups of rollouts and batches of groups (docs/batches.md). Results come from the store, so that they are there beyond
 * Temporal's retention; while something is open, its workflow is asked, which needs a workflow worker.
 */
export class GroupClient {
  readonly #temporal: Client;
  readonly #store: GroupStore;

  constructor(temporal: Client, store: GroupStore) {
    this.#temporal = temporal;
    this.#store = store;
  }

  /**
   * Begins a group; it is durable when this resolves.
   * @returns what is known of one that was begun before with this id: the digest of its request
   */
  async startGroup(input: GroupInput): Promise<{ isNew: boolean; digest: string | undefined }> {
    const known = await this.#store.getGroup(input.groupId);
    if (known) return { isNew: false, digest: known.digest ?? undefined };
    return this.#start(GROUP_WORKFLOW, groupWorkflowId(input.groupId), input, input.groupId);
  }

  /** Begins a batch, as {@link startGroup}. */
  async startBatch(input: BatchInput): Promise<{ isNew: boolean; digest: string | undefined }> {
    const known = await this.#store.getBatch(input.batchId);
    if (known) return { isNew: false, digest: known.digest ?? undefined };
    const { groups } = input.rules;
    return this.#start(
      BATCH_WORKFLOW,
      batchWorkflowId(input.batchId),
      input,
      `${input.batchId} · ${groups} groups of ${input.group.samples}`,
    );
  }

  /** Whether a group or a batch has been begun. */
  async isKnown(kind: 'group' | 'batch', id: string): Promise<boolean> {
    if (kind === 'group' ? await this.#store.getGroup(id) : await this.#store.getBatch(id)) return true;
    try {
      await this.#temporal.workflow.getHandle(workflowIdOf(kind, id)).describe();
      return true;
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return false;
      throw error;
    }
  }

  /**
   * The result of a group that has ended, else how it stands.
   * @throws WorkflowNotFoundError; RolloutError Terminated if it will never have a result
   */
  async group(groupId: string): Promise<GroupResult | GroupStatus> {
    const result = await this.#store.getGroup(groupId);
    return result ?? this.#ask<GroupStatus>('group', groupId, GROUP_STATUS_QUERY);
  }

  /** The result of a batch that has ended. */
  batchResult(batchId: string): Promise<BatchResult | undefined> {
    return this.#store.getBatch(batchId);
  }

  /** Batches that Temporal remembers, open ones first, then the last that ended. */
  async batches(most: number): Promise<BatchListing[]> {
    // One that went on in a new history stands here by its last one.
    const query = `WorkflowType = '${BATCH_WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'`;
    const batches: BatchListing[] = [];
    for await (const { workflowId, status, startTime, closeTime } of this.#temporal.workflow.list({
      query,
    })) {
      const batchId = workflowId.replace(/^batch:/, '');
      const [startedAt, closedAt] = [startTime.toISOString(), closeTime?.toISOString() ?? null];
      if (batches.push({ batchId, workflowState: status.name, startedAt, closedAt }) === most) break;
    }
    return batches;
  }

  /** How a batch stands. @throws WorkflowNotFoundError; RolloutError Terminated if it will never have a result */
  batchStatus(batchId: string): Promise<BatchStatus> {
    return this.#ask<BatchStatus>('batch', batchId, BATCH_STATUS_QUERY);
  }

  /** What happened in a batch after the event with this number. @throws WorkflowNotFoundError */
  batchEvents(batchId: string, after: number): Promise<BatchEvent[]> {
    return this.#temporal.workflow
      .getHandle(batchWorkflowId(batchId))
      .query<BatchEvent[], [number]>(BATCH_EVENTS_QUERY, after);
  }

  /**
   * Groups of a batch in the order of their starts but for the first `after`, each as soon as it is one, until the batch
   * ends.
   */
  async *batchGroups(batchId: string, after: number, signal: AbortSignal): AsyncIterable<GroupResult> {
    for (let sent = after; ; ) {
      const ended = await this.batchResult(batchId);
      const groups = ended?.groups ?? (await this.batchStatus(batchId)).admitted;
      for (const groupId of groups.slice(sent)) yield (await this.#store.getGroup(groupId)) as GroupResult;
      sent = Math.max(sent, groups.length);
      if (ended || signal.aborted) return;
      await pause(ASK_EVERY_MS, signal);
    }
  }

  /** Waits for so many milliseconds for `look` to find something. */
  async within<T>(
    ms: number,
    look: () => Promise<T | undefined>,
    signal: AbortSignal,
  ): Promise<T | undefined> {
    for (const until = Date.now() + ms; ; ) {
      const found = await look();
      if (found !== undefined || Date.now() >= until || signal.aborted) return found;
      await pause(Math.min(ASK_EVERY_MS, until - Date.now()), signal);
    }
  }

  /** Ends a group or a batch with all that it has begun; harmless on one that has ended. @throws WorkflowNotFoundError */
  async cancel(kind: 'group' | 'batch', id: string, reason: CancelReason): Promise<void> {
    await this.#tell(kind, id, CANCEL_SIGNAL, { reason } satisfies CancelSignal);
  }

  /** Pauses the open rollouts of a group, or lets them go on. @throws WorkflowNotFoundError */
  async pauseGroup(groupId: string, paused: boolean): Promise<void> {
    await this.#tell('group', groupId, paused ? PAUSE : RESUME);
  }

  async #tell(kind: 'group' | 'batch', id: string, signal: string, ...args: unknown[]): Promise<void> {
    try {
      await this.#temporal.workflow.getHandle(workflowIdOf(kind, id)).signal(signal, ...args);
    } catch (error) {
      if (!(error instanceof WorkflowNotFoundError)) throw error;
      const ended = kind === 'group' ? await this.#store.getGroup(id) : await this.#store.getBatch(id);
      if (!ended) throw error;
    }
  }

  async #start(
    type: string,
    workflowId: string,
    input: GroupInput | BatchInput,
    staticSummary: string,
  ): Promise<{ isNew: boolean; digest: string | undefined }> {
    const { digest } = input;
    try {
      await this.#temporal.workflow.start(type, {
        ...{ workflowId, taskQueue: WORKFLOW_QUEUE, args: [input], staticSummary },
        ...priorityOf(input.template),
        workflowIdReusePolicy: WorkflowIdReusePolicy.REJECT_DUPLICATE,
        workflowIdConflictPolicy: WorkflowIdConflictPolicy.FAIL,
        ...(digest === undefined ? {} : { memo: { digest } }),
      });
      return { isNew: true, digest };
    } catch (error) {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      const { memo } = await this.#temporal.workflow.getHandle(workflowId).describe();
      return { isNew: false, digest: memo?.digest as string | undefined };
    }
  }

  async #ask<T>(kind: 'group' | 'batch', id: string, query: string): Promise<T> {
    const handle = this.#temporal.workflow.getHandle(workflowIdOf(kind, id));
    const [answer, { status }] = await Promise.all([handle.query<T>(query), handle.describe()]);
    const ended = kind === 'group' ? () => this.#store.getGroup(id) : () => this.#store.getBatch(id);
    // Its result is kept before it is closed: one that is closed without was closed from outside, and says nothing more.
    if (status.name === 'RUNNING' || (await ended())) return answer;
    const closed = `${kind} ${id} was closed from outside (${status.name.toLowerCase()})`;
    throw new RolloutError('Terminated', `${closed}: it has no result and will have none`);
  }
}

function workflowIdOf(kind: 'group' | 'batch', id: string): string {
  return kind === 'group' ? groupWorkflowId(id) : batchWorkflowId(id);
}

/** Resolves after so many milliseconds, or when the signal is aborted. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, Math.max(0, ms));
    signal.addEventListener('abort', done, { once: true });
    function done() {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    }
  });
}
