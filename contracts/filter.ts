import { ROLLOUT_WORKFLOW } from './signals.ts';

/** Which rollouts to list; every given part must match. */
export interface RolloutFilter {
  readonly batchId?: string;
  readonly groupId?: string;
  readonly taskId?: string;
  readonly stage?: string;
  readonly outcome?: string;
  readonly host?: string;
}

const ATTRIBUTE_OF: Record<keyof RolloutFilter, string> = {
  batchId: 'BatchId',
  groupId: 'GroupId',
  taskId: 'TaskId',
  stage: 'Stage',
  outcome: 'Outcome',
  host: 'Host',
};

/** The filter as a Temporal visibility query. Values are quoted; a quote in one can't end it. */
export function visibilityQuery(filter: RolloutFilter): string {
  const parts = [`WorkflowType = ${quoted(ROLLOUT_WORKFLOW)}`];
  for (const [name, attribute] of Object.entries(ATTRIBUTE_OF)) {
    const value = filter[name as keyof RolloutFilter];
    if (value !== undefined) parts.push(`${attribute} = ${quoted(value)}`);
  }
  return parts.join(' AND ');
}

function quoted(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}
