import { Context } from '@temporalio/activity';
import { WorkflowNotFoundError } from '@temporalio/client';
import { type BatchActivities, batchWorkflowId } from '../../contracts/batch.ts';
import { endOf, type GroupActivities, reportOf } from '../../contracts/group.ts';
import { POOL_STATE_QUERY, type PoolState, poolWorkflowId, versionOf } from '../../contracts/pool.ts';
import { RolloutRequest } from '../../contracts/request.ts';
import { startRollout } from '../start-rollout.ts';
import type { TrajectoryStore } from '../trajectory/store.ts';
import type { GroupStore } from './group-store.ts';

/** What the activities work with. */
export interface GroupParts {
  readonly store: TrajectoryStore;
  readonly groups: GroupStore;
  /** Name of the pool that rollouts are sampled from. */
  readonly pool: string;
  /** Address of the rollout page, if it is known. */
  readonly pageUrl?: string | undefined;
}

/** The activities of groups and batches. */
export function makeGroupActivities({
  store,
  groups,
  pool,
  pageUrl,
}: GroupParts): GroupActivities & BatchActivities {
  const client = () => Context.current().client;
  return {
    beginRollouts: async ({ group, numbers }) => {
      const task = await groups.task(group.task);
      const { groupId, batchId, template } = group;
      const reportTo = Context.current().info.workflowExecution?.workflowId;
      const requests = numbers.map((number) =>
        RolloutRequest.parse({
          ...template,
          ...{ rolloutId: `${groupId}.${number}`, task, sample: number, groupId, reportTo },
          ...(batchId === undefined ? {} : { batchId }),
        }),
      );
      await Promise.all(requests.map((request) => startRollout(client(), request, pageUrl)));
      return { taskId: task.id, handler: task.handler };
    },

    lookUpRollouts: async ({ rolloutIds }) => {
      const records = await Promise.all(rolloutIds.map((id) => store.getTerminal(id)));
      return records.filter((record) => record !== undefined).map(endOf);
    },

    keepGroup: ({ result }) => groups.putGroup(result),

    surroundings: async () => {
      const since = new Date(Date.now() - 600_000).toISOString();
      const query = `WorkflowType = 'rollout' AND ExecutionStatus != 'Running' AND CloseTime > '${since}'`;
      const { count } = await client().workflow.count(query);
      return { ended: count, ...(await policy()) };
    },

    takeSurplus: async ({ from, to }) => {
      // In this order: a batch that is closed has its result in the store, if it will ever have one.
      const open = await isOpen(batchWorkflowId(from));
      const before = await groups.getBatch(from);
      if (!before) return { groups: [], ended: !open };
      const mine = before.surplus.length > 0 && (await groups.takeSurplus(from, to));
      return { groups: mine ? [...before.surplus] : [], ended: true };
    },

    lookUpGroups: async ({ groupIds }) => {
      const results = await Promise.all(groupIds.map((id) => groups.getGroup(id)));
      return results.filter((result) => result !== undefined).map(reportOf);
    },

    keepBatch: ({ result }) => groups.putBatch(result),
  };

  /** Nobody has made a pool yet: no version, no floor. */
  async function policy(): Promise<{ version: number | null; floor: number }> {
    const handle = client().workflow.getHandle(poolWorkflowId(pool));
    try {
      const state = await handle.query<PoolState>(POOL_STATE_QUERY);
      return { version: versionOf(state) ?? null, floor: state.floor };
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return { version: null, floor: 0 };
      throw error;
    }
  }

  async function isOpen(workflowId: string): Promise<boolean> {
    try {
      return (await client().workflow.getHandle(workflowId).describe()).status.name === 'RUNNING';
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return false;
      throw error;
    }
  }
}
