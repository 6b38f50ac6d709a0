/** Task queue of the workflows. */
export const WORKFLOW_QUEUE = 'rollouts-workflows';

/** Task queue of the init stage, optionally of one hardware class. Taken by any host with room. */
export function initQueue(hardwareClass?: string): string {
  return hardwareClass ? `rollouts-init-${hardwareClass}` : 'rollouts-init';
}

/** Task queue of the evaluate stage, optionally of one hardware class. */
export function evalQueue(hardwareClass?: string): string {
  return hardwareClass ? `rollouts-eval-${hardwareClass}` : 'rollouts-eval';
}

/** Task queue of the run stage on one host: run follows the sandbox that init made there. */
export function runQueue(host: string): string {
  return `rollouts-run-${host}`;
}

/** Task queue of terminal records of rollouts that are not graded; graders can't keep them waiting. */
export const RECORDS_QUEUE = 'rollouts-records';

/** Control queue of one process that holds state, for short commands (release, abort). */
export function controlQueue(process: string): string {
  return `rollouts-control-${process}`;
}

/** Task queue of what is done to LLM servers; taken by run workers, which reach them. */
export const POOL_QUEUE = 'rollouts-pool';

/** Temporal worker deployment of the workflow workers, if they are versioned. */
export const DEPLOYMENT = 'rollouts';
