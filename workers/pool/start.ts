import { type Client, WorkflowIdConflictPolicy } from '@temporalio/client';
import { POOL_WORKFLOW, type PoolInput, poolWorkflowId } from '../../contracts/pool.ts';
import { WORKFLOW_QUEUE } from '../../contracts/queues.ts';

/** Starts the workflow of a pool, unless it runs. */
export async function startPool(client: Client, input: PoolInput): Promise<void> {
  await client.workflow.start(POOL_WORKFLOW, {
    workflowId: poolWorkflowId(input.pool),
    taskQueue: WORKFLOW_QUEUE,
    args: [input],
    workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
    staticSummary: `LLM servers "${input.pool}"`,
  });
}
