import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import type { AuditOptions } from './audit.ts';

/** Looks rollouts up in Temporal: a run is open until it is closed, reset or unknown to the server. */
export function lookUpIn(client: Client): AuditOptions['isOpen'] {
  return async (rolloutId, workflowRunId) => {
    try {
      const { status } = await client.workflow.getHandle(rolloutId, workflowRunId).describe();
      return status.name === 'RUNNING' || status.name === 'PAUSED' ? 'open' : 'closed';
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return 'closed';
      throw error; // the server cannot be reached: the audit takes that for unknown
    }
  };
}
