/** Seconds of work: from a millisecond to the longest deadline anybody sets. */
const WORK = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];
/** Seconds of short calls. */
const CALLS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600];
const REWARDS = [-1, -0.5, 0, 0.1, 0.25, 0.5, 0.75, 0.9, 1, 2];
const TOKENS = [16, 64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
const TURNS = [1, 2, 3, 5, 8, 13, 21, 34, 55, 100, 200, 500];
const VERSIONS = [0, 1, 2, 3, 4, 6, 8, 12, 16];

/** Which part of the system a metric is of; a process has those of its roles. */
export const COMPONENTS = {
  activities: 'Every worker and the sandbox host: the activities that they take from queues.',
  queues: 'Every worker and the sandbox host: the queues that they take from.',
  workflows: 'Workers with the role `workflow`.',
  admission: 'Workers with the role `init`.',
  agents: 'Workers with the role `run`: what the agents do.',
  llm: 'Workers with the roles `run` or `eval`: the pool of LLM servers.',
  outcomes: 'Workers with the role `eval`: how rollouts end.',
  batches: 'Workers with the role `eval`: groups and batches.',
  sandboxes: 'The sandbox host.',
  gateway: 'The gateway.',
} as const;
export type Component = keyof typeof COMPONENTS;

/** One metric. */
export interface MetricSpec {
  readonly kind: 'counter' | 'gauge' | 'histogram';
  readonly component: Component;
  readonly help: string;
  readonly labels?: readonly string[];
  /** Upper bounds; of a histogram. */
  readonly buckets?: readonly number[];
}

/**
 * Every metric of this project, by its name. Seconds, tokens, versions are the units; no label has a value that grows with
 * the number of rollouts.
 */
export const METRICS = {
  rollouts_activity_wait_seconds: {
    kind: 'histogram',
    component: 'activities',
    help: 'From when an activity was scheduled to when a worker began it.',
    labels: ['activity'],
    buckets: WORK,
  },
  rollouts_activity_seconds: {
    kind: 'histogram',
    component: 'activities',
    help: 'How long an activity took; end is ok, failed or cancelled.',
    labels: ['activity', 'end'],
    buckets: WORK,
  },
  rollouts_activity_running: {
    kind: 'gauge',
    component: 'activities',
    help: 'Activities under way in this process.',
    labels: ['activity'],
  },
  rollouts_activity_failures_total: {
    kind: 'counter',
    component: 'activities',
    help: 'Activities that failed, by the failure’s type (docs/failures.md); Other if it has none of those.',
    labels: ['activity', 'type'],
  },
  rollouts_activity_slots: {
    kind: 'gauge',
    component: 'activities',
    help: 'Activities of a stage that this process may have under way.',
    labels: ['activity'],
  },
  rollouts_queue_backlog_tasks: {
    kind: 'gauge',
    component: 'queues',
    help: 'Tasks that wait in Temporal, about; of the whole queue, whichever process tells.',
    labels: ['queue'],
  },
  rollouts_queue_backlog_age_seconds: {
    kind: 'gauge',
    component: 'queues',
    help: 'How long the oldest task of a queue has waited.',
    labels: ['queue'],
  },
  rollouts_queue_unknown: {
    kind: 'gauge',
    component: 'queues',
    help: '1 where Temporal did not tell of a queue at this scrape.',
    labels: ['queue'],
  },
  rollouts_open: {
    kind: 'gauge',
    component: 'workflows',
    help: 'Open rollouts by the stage that they are in; of the whole namespace, whichever process tells.',
    labels: ['stage'],
  },
  rollouts_agents_most: {
    kind: 'gauge',
    component: 'admission',
    help: 'Agents that this process lets there be on its host: its room, or what the LLM servers take (workers.llmPacing).',
  },
  rollouts_disk_free_bytes: {
    kind: 'gauge',
    component: 'admission',
    help: 'Free on the disk of the state folder, and of the store’s, as this machine sees it.',
    labels: ['folder'],
  },
  rollouts_disk_least_bytes: {
    kind: 'gauge',
    component: 'admission',
    help: 'With less free than this no rollout is begun on the host (sandbox.minFreeBytes).',
  },
  rollouts_turns_total: {
    kind: 'counter',
    component: 'agents',
    help: 'Turns that were sampled to their end.',
    labels: ['kind'],
  },
  rollouts_tokens_total: {
    kind: 'counter',
    component: 'agents',
    help: 'Tokens recorded in ledgers: of prompts, sampled, or observed (tool results).',
    labels: ['kind', 'source'],
  },
  rollouts_tool_seconds: {
    kind: 'histogram',
    component: 'agents',
    help: 'How long a tool call took.',
    labels: ['tool'],
    buckets: CALLS,
  },
  rollouts_tool_calls_total: {
    kind: 'counter',
    component: 'agents',
    help:
      'Tool calls by how they ended (ok, timeout, restarted, refused) and exit: zero, nonzero, or none where there ' +
      'is no exit status. A call that is refused has the tool’s name only if that was seen before, else other.',
    labels: ['tool', 'status', 'exit'],
  },
  rollouts_malformed_calls_total: {
    kind: 'counter',
    component: 'agents',
    help: 'Tool calls that could not be read, by what was wrong.',
    labels: ['problem'],
  },
  rollouts_runs_total: {
    kind: 'counter',
    component: 'agents',
    help: 'Entries into the run stage by how they ended: as agents end, or paused, or shutdown (of the worker).',
    labels: ['kind', 'ended'],
  },
  rollouts_llm_requests_total: {
    kind: 'counter',
    component: 'llm',
    help: 'Requests for tokens by how they finished: stop, length, abort, error.',
    labels: ['server', 'finish'],
  },
  rollouts_llm_request_seconds: {
    kind: 'histogram',
    component: 'llm',
    help: 'How long a request for tokens took, the wait for a server that has room included.',
    labels: ['server'],
    buckets: WORK,
  },
  rollouts_llm_prompt_tokens_total: {
    kind: 'counter',
    component: 'llm',
    help: 'Tokens sent in requests; servers have most of them in their prefix caches.',
    labels: ['server'],
  },
  rollouts_llm_sampled_tokens_total: {
    kind: 'counter',
    component: 'llm',
    help: 'Tokens sampled by requests.',
    labels: ['server'],
  },
  rollouts_llm_open_seconds: {
    kind: 'histogram',
    component: 'llm',
    help: 'From when a rollout or a judge asked for a server to when it had one.',
    buckets: CALLS,
  },
  rollouts_llm_waiting: {
    kind: 'gauge',
    component: 'llm',
    help: 'Rollouts of this process that wait because no server works.',
  },
  rollouts_llm_servers: {
    kind: 'gauge',
    component: 'llm',
    help: 'Members of the pool by state: active, draining, out.',
    labels: ['state'],
  },
  rollouts_llm_server_up: {
    kind: 'gauge',
    component: 'llm',
    help: '1 if this process asks the server, 0 while it leaves it alone because it failed.',
    labels: ['server'],
  },
  rollouts_llm_server_requests: {
    kind: 'gauge',
    component: 'llm',
    help: 'Requests that the server says it works on (running) and keeps waiting (waiting), of all its callers.',
    labels: ['server', 'state'],
  },
  rollouts_policy_version: {
    kind: 'gauge',
    component: 'llm',
    help: 'The newest policy version that the pool serves.',
  },
  rollouts_policy_floor: {
    kind: 'gauge',
    component: 'llm',
    help: 'The lowest policy version that is still wanted.',
  },
  rollouts_weight_swaps_total: {
    kind: 'counter',
    component: 'llm',
    help: 'Rises of the pool’s policy version that this process has seen: each process sees all of them.',
  },
  rollouts_pool_lease: {
    kind: 'gauge',
    component: 'llm',
    help: '1 while this process has a lease of the pool: without one no request begins.',
  },
  rollouts_ended_total: {
    kind: 'counter',
    component: 'outcomes',
    help: 'Rollouts that ended: terminal records made, one for each rollout.',
    labels: ['kind', 'outcome'],
  },
  rollouts_reward: {
    kind: 'histogram',
    component: 'outcomes',
    help: 'Rewards of rollouts that were graded.',
    labels: ['kind'],
    buckets: REWARDS,
  },
  rollouts_test_verdicts_total: {
    kind: 'counter',
    component: 'outcomes',
    help: 'Tests that graded rollouts’ programs were put to, by verdict: AC, WA, TLE, MLE, RE, CE (docs/graders.md).',
    labels: ['kind', 'verdict'],
  },
  rollouts_truncated_total: {
    kind: 'counter',
    component: 'outcomes',
    help: 'Rollouts that were truncated, by what ended them.',
    labels: ['kind', 'limit'],
  },
  rollouts_failed_total: {
    kind: 'counter',
    component: 'outcomes',
    help: 'Rollouts that failed, by stage and type (docs/failures.md).',
    labels: ['stage', 'type'],
  },
  rollouts_retries_total: {
    kind: 'counter',
    component: 'outcomes',
    help: 'Failures that a retry made good or tried to, of rollouts that have ended.',
    labels: ['stage', 'type'],
  },
  rollouts_cancel_seconds: {
    kind: 'histogram',
    component: 'outcomes',
    help: 'From when a cancellation arrived to when the sandbox was released.',
    labels: ['reason'],
    buckets: CALLS,
  },
  rollouts_part_seconds: {
    kind: 'histogram',
    component: 'outcomes',
    help: 'Where rollouts that ended spent their time: init, run, evaluate, paused, queue, and total.',
    labels: ['part'],
    buckets: WORK,
  },
  rollouts_sampled_tokens: {
    kind: 'histogram',
    component: 'outcomes',
    help: 'Sampled tokens of a rollout.',
    labels: ['kind'],
    buckets: TOKENS,
  },
  rollouts_turns: {
    kind: 'histogram',
    component: 'outcomes',
    help: 'Turns of a rollout.',
    labels: ['kind'],
    buckets: TURNS,
  },
  rollouts_staleness_versions: {
    kind: 'histogram',
    component: 'outcomes',
    help: 'When a rollout ended: the policy version then, less the oldest among its sampled tokens.',
    buckets: VERSIONS,
  },
  rollouts_groups_total: {
    kind: 'counter',
    component: 'batches',
    help: 'Groups that ended, by verdict.',
    labels: ['kind', 'verdict'],
  },
  rollouts_batches_total: {
    kind: 'counter',
    component: 'batches',
    help: 'Batches that ended, by how.',
    labels: ['end'],
  },
  rollouts_batch_seconds: {
    kind: 'histogram',
    component: 'batches',
    help: 'From the start of a batch to its end.',
    buckets: [...WORK, 7200, 21_600, 86_400],
  },
  rollouts_batch_groups_total: {
    kind: 'counter',
    component: 'batches',
    help: 'Groups of batches that ended: admitted, dropped, or surplus, which are kept for the next batch.',
    labels: ['fate'],
  },
  rollouts_batch_sample_tokens: {
    kind: 'gauge',
    component: 'batches',
    help: 'Mean tokens of a sample in the last batch that ended here, of admitted and of discarded groups.',
    labels: ['fate'],
  },
  rollouts_sandboxes: {
    kind: 'gauge',
    component: 'sandboxes',
    help: 'Sandboxes there are, of agents and of graders.',
    labels: ['purpose'],
  },
  rollouts_sandbox_capacity: {
    kind: 'gauge',
    component: 'sandboxes',
    help: 'Sandboxes there may be.',
    labels: ['purpose'],
  },
  rollouts_host_call_seconds: {
    kind: 'histogram',
    component: 'sandboxes',
    help:
      'How long a call of the sandbox host took, by its route and status: making and releasing a sandbox, commands, ' +
      'appending to a ledger (with the disk’s fsync).',
    labels: ['call', 'code'],
    buckets: CALLS,
  },
  rollouts_sandbox_commands_total: {
    kind: 'counter',
    component: 'sandboxes',
    help: 'Commands run in sandboxes, by shell or exec, and by end: zero, nonzero, signal or timeout.',
    labels: ['via', 'end'],
  },
  rollouts_sandbox_limits_total: {
    kind: 'counter',
    component: 'sandboxes',
    help: 'Commands that hit a limit of their sandbox.',
    labels: ['limit'],
  },
  rollouts_sandbox_leaks_total: {
    kind: 'counter',
    component: 'sandboxes',
    help: 'Sandboxes that nobody held and that the host had to reap: 0 unless a rollout left one behind.',
  },
  rollouts_sandboxes_lost_total: {
    kind: 'counter',
    component: 'sandboxes',
    help: 'Sandboxes that an earlier host of this machine left when it died, found when this one began.',
  },
  rollouts_http_request_seconds: {
    kind: 'histogram',
    component: 'gateway',
    help: 'How long a request took, by route and status; a long poll takes as long as it is asked to.',
    labels: ['method', 'route', 'code'],
    buckets: CALLS,
  },
  rollouts_http_requests_open: {
    kind: 'gauge',
    component: 'gateway',
    help: 'Requests under way.',
  },
} as const satisfies Record<string, MetricSpec>;

export type MetricName = keyof typeof METRICS;
/** Names of one kind. */
export type NamesOf<Kind extends MetricSpec['kind']> = {
  [Name in MetricName]: (typeof METRICS)[Name]['kind'] extends Kind ? Name : never;
}[MetricName];
/** The labels that a metric has. */
export type LabelsOf<Name extends MetricName> = (typeof METRICS)[Name] extends {
  readonly labels: readonly (infer Label extends string)[];
}
  ? Label
  : never;
