import { getExternalWorkflowHandle, log } from '@temporalio/workflow';

/** Signals a workflow; one that is closed needs no telling. */
export async function told(workflowId: string, signal: string, ...args: unknown[]): Promise<void> {
  try {
    await getExternalWorkflowHandle(workflowId).signal(signal, ...args);
  } catch (error) {
    log.info('not told: it is closed', { workflowId, signal, error: String(error) });
  }
}
