import { ROLLOUT_WORKFLOW } from './signals.ts';

/** Which rollouts to list; every given part must match. */
export interface RolloutFilter {
  readonly batchId?: string;
  readonly groupId?: string;
  readonly taskId?: string;
  readonly handler?: string;
  readonly stage?: string;
  readonly outcome?: string;
  readonly host?: string;
  /** What the id of the rollout, of its task, its group or its batch begins with. */
  readonly text?: string;
  readonly tenant?: string;
}

const ATTRIBUTE_OF: Record<Exclude<keyof RolloutFilter, 'text'>, string> = {
  batchId: 'BatchId',
  groupId: 'GroupId',
  taskId: 'TaskId',
  handler: 'TaskKind',
  stage: 'Stage',
  outcome: 'Outcome',
  host: 'Host',
  tenant: 'Tenant',
};
/** Of which one begins with a filter's text. */
const IDS = ['WorkflowId', 'TaskId', 'GroupId', 'BatchId'];

/** The filter as a Temporal visibility query. Values are quoted; a quote in one can't end it. */
export function visibilityQuery({ text, ...filter }: RolloutFilter): string {
  const parts = [`WorkflowType = ${quoted(ROLLOUT_WORKFLOW)}`];
  for (const [name, attribute] of Object.entries(ATTRIBUTE_OF)) {
    const value = filter[name as keyof typeof filter];
    if (value !== undefined) parts.push(`${attribute} = ${quoted(value)}`);
  }
  if (text !== undefined) {
    parts.push(`(${IDS.map((name) => `${name} STARTS_WITH ${quoted(text)}`).join(' OR ')})`);
  }
  return parts.join(' AND ');
}

function quoted(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}
