import {
  type Client,
  WorkflowExecutionAlreadyStartedError,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
} from '@temporalio/client';
import { type Priority, TypedSearchAttributes } from '@temporalio/common';
import { WORKFLOW_QUEUE } from '../contracts/queues.ts';
import type { RolloutRequest } from '../contracts/request.ts';
import { SEARCH_ATTRIBUTES as ATTRIBUTES } from '../contracts/search-attributes.ts';
import { ROLLOUT_WORKFLOW } from '../contracts/signals.ts';

/**
 * Starts the workflow of a rollout; it is durable when this resolves. One that is known, open or ended, is not started
 * again. Where the address of the rollout page is known, the Temporal UI links to it.
 * @returns whether it was not known
 */
export async function startRollout(
  temporal: Client,
  request: RolloutRequest,
  pageUrl?: string,
): Promise<boolean> {
  const { rolloutId, digest, task, sample } = request;
  try {
    await temporal.workflow.start(ROLLOUT_WORKFLOW, {
      workflowId: rolloutId,
      taskQueue: WORKFLOW_QUEUE,
      args: [request],
      workflowIdReusePolicy: WorkflowIdReusePolicy.REJECT_DUPLICATE,
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.FAIL,
      ...(digest === undefined ? {} : { memo: { digest } }),
      typedSearchAttributes: attributesOf(request),
      ...priorityOf(request),
      ...(pageUrl === undefined
        ? {}
        : { staticDetails: `[The rollout page](${pageUrl.replace(/\/+$/, '')}/#/rollouts/${rolloutId})` }),
      staticSummary: `${task.handler} ${task.id} · sample ${sample}`,
    });
    return true;
  } catch (error) {
    if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
    throw error;
  }
}

/** By which a server that knows fairness shares out what it begins: a tenant's stages inherit it. */
export function priorityOf({ tenant }: Pick<RolloutRequest, 'tenant'>): { priority?: Priority } {
  if (!tenant) return {};
  const { name, weight, priority } = tenant;
  return { priority: { priorityKey: priority, fairnessKey: name, fairnessWeight: weight } };
}

function attributesOf(request: RolloutRequest): TypedSearchAttributes {
  return new TypedSearchAttributes([
    { key: ATTRIBUTES.taskKind, value: request.task.handler },
    { key: ATTRIBUTES.taskId, value: request.task.id },
    { key: ATTRIBUTES.stage, value: 'queued' },
    ...(request.tenant ? [{ key: ATTRIBUTES.tenant, value: request.tenant.name }] : []),
    ...(request.groupId ? [{ key: ATTRIBUTES.groupId, value: request.groupId }] : []),
    ...(request.batchId ? [{ key: ATTRIBUTES.batchId, value: request.batchId }] : []),
  ]);
}
