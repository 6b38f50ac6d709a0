import type { LabelledServers } from '../../activities/grading/judge-model.ts';
import type { GroupStore } from '../../activities/groups/group-store.ts';
import type { PolicySource } from '../../activities/run.ts';
import type { SandboxClient } from '../../activities/sandbox/client.ts';
import type { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { countAgents } from './agents.ts';
import { countRequests } from './llm.ts';
import type { Metrics } from './metrics.ts';
import { countGroups, countOutcomes, type OutcomeFacts } from './outcomes.ts';

/** What the stages of a worker work with. */
export interface StageParts {
  readonly store: TrajectoryStore;
  readonly groups: GroupStore;
  /** As the run stage uses them. */
  readonly sandboxes: SandboxClient;
  /** Of the pool, in processes that sample. */
  readonly servers: (PolicySource & LabelledServers) | undefined;
}

/** The same parts, with what passes through them counted; without `metrics` the parts themselves. */
export function countedParts(
  parts: StageParts,
  metrics: Metrics | undefined,
  facts: OutcomeFacts,
): StageParts {
  if (!metrics) return parts;
  const { store, groups, sandboxes, servers } = parts;
  return {
    store: metrics.has('outcomes') ? countOutcomes(store, metrics, facts) : store,
    groups: metrics.has('batches') ? countGroups(groups, metrics, facts) : groups,
    sandboxes: metrics.has('agents') ? countAgents(sandboxes, metrics) : sandboxes,
    servers: servers && countRequests(servers, metrics),
  };
}
