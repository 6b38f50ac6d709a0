import type { Dashboard, Panel } from './model.ts';
import { mean, percentile, rate } from './promql.ts';

/** What every stage is looked at by. */
function stage(activity: string): Panel[] {
  const filter = `activity="${activity}"`;
  return [
    {
      title: 'Under way, and slots',
      unit: 'short',
      targets: [
        { expr: `sum(rollouts_activity_running{${filter}})`, legend: 'under way' },
        { expr: `sum(rollouts_activity_slots{${filter}})`, legend: 'slots' },
      ],
    },
    {
      title: 'Tasks that wait, and the oldest’s age',
      unit: 'short',
      targets: [
        {
          expr: `max by (queue) (rollouts_queue_backlog_tasks{queue=~"rollouts-${queueOf(activity)}.*"})`,
          legend: '{{queue}} tasks',
        },
        {
          expr: `max by (queue) (rollouts_queue_backlog_age_seconds{queue=~"rollouts-${queueOf(activity)}.*"})`,
          legend: '{{queue}} seconds',
        },
      ],
    },
    {
      title: 'Wait for a worker',
      unit: 's',
      targets: [50, 95, 99].map((each) => percentile(each, 'rollouts_activity_wait_seconds', '', filter)),
    },
    {
      title: 'Time of the stage',
      unit: 's',
      targets: [50, 95, 99].map((each) => percentile(each, 'rollouts_activity_seconds', '', filter)),
    },
    {
      title: 'Ends, a second',
      unit: 'ops',
      targets: [rate(`rollouts_activity_seconds_count{${filter}}`, 'end')],
    },
    {
      title: 'Failures by type, a second',
      help: 'docs/failures.md says what to do about each.',
      unit: 'ops',
      targets: [rate(`rollouts_activity_failures_total{${filter}}`, 'type')],
    },
  ];
}

const queueOf = (activity: string) => (activity === 'evaluate' ? 'eval' : activity);

/** A dashboard for each component. */
export const components: readonly Dashboard[] = [
  { uid: 'rollouts-init', title: 'Rollouts: init', panels: stage('init') },
  {
    uid: 'rollouts-run',
    title: 'Rollouts: run',
    panels: [
      ...stage('run'),
      {
        title: 'How runs end, a second',
        unit: 'ops',
        targets: [rate('rollouts_runs_total', 'ended')],
      },
      { title: 'Turns, a second', unit: 'ops', targets: [rate('rollouts_turns_total', 'kind')] },
      { title: 'Tokens, a second', unit: 'short', targets: [rate('rollouts_tokens_total', 'source')] },
      {
        title: 'Time of a tool call',
        unit: 's',
        targets: [
          percentile(50, 'rollouts_tool_seconds', 'tool'),
          percentile(99, 'rollouts_tool_seconds', 'tool'),
        ],
      },
      {
        title: 'Tool calls, a second',
        unit: 'ops',
        targets: [rate('rollouts_tool_calls_total', 'tool, status, exit')],
      },
      {
        title: 'Calls that could not be read, a second',
        unit: 'ops',
        targets: [rate('rollouts_malformed_calls_total', 'problem')],
      },
    ],
  },
  {
    uid: 'rollouts-eval',
    title: 'Rollouts: evaluate and outcomes',
    panels: [
      ...stage('evaluate'),
      { title: 'Ends, a second', unit: 'ops', targets: [rate('rollouts_ended_total', 'kind, outcome')] },
      { title: 'Mean reward', unit: 'short', targets: [mean('rollouts_reward', 'kind')] },
      {
        title: 'Tests by verdict, a second',
        unit: 'ops',
        targets: [rate('rollouts_test_verdicts_total', 'kind, verdict')],
      },
      {
        title: 'Failed rollouts, a second',
        unit: 'ops',
        targets: [rate('rollouts_failed_total', 'stage, type')],
      },
      { title: 'Retries, a second', unit: 'ops', targets: [rate('rollouts_retries_total', 'stage, type')] },
      {
        title: 'Truncated, a second',
        unit: 'ops',
        targets: [rate('rollouts_truncated_total', 'kind, limit')],
      },
      {
        title: 'Time of a cancellation',
        unit: 's',
        targets: [percentile(95, 'rollouts_cancel_seconds', 'reason')],
      },
      {
        title: 'Length of a rollout',
        unit: 'short',
        targets: [
          { ...mean('rollouts_sampled_tokens', 'kind'), legend: '{{kind}} sampled tokens' },
          { ...mean('rollouts_turns', 'kind'), legend: '{{kind}} turns' },
        ],
      },
      {
        title: 'Staleness in policy versions',
        unit: 'short',
        targets: [
          percentile(50, 'rollouts_staleness_versions'),
          percentile(95, 'rollouts_staleness_versions'),
        ],
      },
    ],
  },
  {
    uid: 'rollouts-llm',
    title: 'Rollouts: LLM pool',
    panels: [
      {
        title: 'Requests that servers work on and keep waiting',
        unit: 'short',
        targets: [
          { expr: 'max by (server, state) (rollouts_llm_server_requests)', legend: '{{server}} {{state}}' },
        ],
      },
      {
        title: 'Servers that are asked',
        unit: 'short',
        targets: [
          { expr: 'min by (server) (rollouts_llm_server_up)', legend: '{{server}}' },
          { expr: 'max by (state) (rollouts_llm_servers)', legend: 'members {{state}}' },
        ],
      },
      {
        title: 'Time of a request',
        unit: 's',
        targets: [
          percentile(50, 'rollouts_llm_request_seconds', 'server'),
          percentile(95, 'rollouts_llm_request_seconds', 'server'),
        ],
      },
      {
        title: 'Requests, a second',
        unit: 'ops',
        targets: [rate('rollouts_llm_requests_total', 'server, finish')],
      },
      {
        title: 'Tokens, a second',
        unit: 'short',
        targets: [
          { ...rate('rollouts_llm_sampled_tokens_total', 'server'), legend: '{{server}} sampled' },
          { ...rate('rollouts_llm_prompt_tokens_total', 'server'), legend: '{{server}} sent' },
        ],
      },
      {
        title: 'Rollouts that wait for a server',
        unit: 'short',
        targets: [
          { expr: 'sum(rollouts_llm_waiting)', legend: 'waiting' },
          { ...percentile(95, 'rollouts_llm_open_seconds'), legend: 'p95 seconds to get one' },
        ],
      },
      {
        title: 'Policy version',
        unit: 'short',
        targets: [
          { expr: 'max(rollouts_policy_version)', legend: 'version' },
          { expr: 'max(rollouts_policy_floor)', legend: 'floor' },
        ],
      },
      {
        title: 'Weight swaps and leases',
        unit: 'short',
        targets: [
          { expr: 'max(increase(rollouts_weight_swaps_total[1h]))', legend: 'swaps in an hour' },
          { expr: 'count(rollouts_pool_lease == 0) or vector(0)', legend: 'processes without a lease' },
          {
            expr: 'sum by (activity) (rate(rollouts_activity_seconds_sum{activity="loadWeights"}[1h])) / sum by (activity) (rate(rollouts_activity_seconds_count{activity="loadWeights"}[1h]))',
            legend: 'seconds to load weights',
          },
        ],
      },
    ],
  },
  {
    uid: 'rollouts-host',
    title: 'Rollouts: sandbox hosts',
    panels: [
      {
        title: 'Sandboxes, and room',
        unit: 'short',
        targets: [
          { expr: 'sum by (instance, purpose) (rollouts_sandboxes)', legend: '{{instance}} {{purpose}}' },
          {
            expr: 'sum by (instance, purpose) (rollouts_sandbox_capacity)',
            legend: '{{instance}} {{purpose}} room',
          },
          { expr: 'sum by (instance) (rollouts_agents_most)', legend: '{{instance}} agents let in' },
        ],
      },
      {
        title: 'Free disk',
        help: 'Below the least no rollout is begun on the host.',
        unit: 'bytes',
        targets: [
          {
            expr: 'min by (instance, folder) (rollouts_disk_free_bytes)',
            legend: '{{instance}} {{folder}}',
          },
          { expr: 'max by (instance) (rollouts_disk_least_bytes)', legend: '{{instance}} least' },
        ],
      },
      {
        title: 'Leaks and losses',
        help: 'Not 0: `rollouts doctor --leaks` on that host says what is left.',
        unit: 'short',
        targets: [
          { expr: 'sum by (instance) (rollouts_sandbox_leaks_total)', legend: '{{instance}} reaped' },
          {
            expr: 'sum by (instance) (rollouts_sandboxes_lost_total)',
            legend: '{{instance}} lost with an earlier host',
          },
        ],
      },
      {
        title: 'Time of a call, p99',
        unit: 's',
        targets: [percentile(99, 'rollouts_host_call_seconds', 'call')],
      },
      {
        title: 'Calls, a second',
        unit: 'ops',
        targets: [rate('rollouts_host_call_seconds_count', 'call, code')],
      },
      {
        title: 'Commands, a second',
        unit: 'ops',
        targets: [rate('rollouts_sandbox_commands_total', 'via, end')],
      },
      {
        title: 'Limits hit, a second',
        unit: 'ops',
        targets: [rate('rollouts_sandbox_limits_total', 'limit')],
      },
    ],
  },
  {
    uid: 'rollouts-temporal',
    title: 'Rollouts: Temporal',
    panels: [
      {
        title: 'Open rollouts',
        unit: 'short',
        targets: [{ expr: 'max by (stage) (rollouts_open)', legend: '{{stage}}' }],
      },
      {
        title: 'Tasks that wait',
        unit: 'short',
        targets: [{ expr: 'max by (queue) (rollouts_queue_backlog_tasks)', legend: '{{queue}}' }],
      },
      {
        title: 'Wait of workflow tasks',
        unit: 's',
        targets: [percentile(95, 'temporal_workflow_task_schedule_to_start_latency_seconds')],
      },
      {
        title: 'Slots used',
        unit: 'short',
        targets: [
          {
            expr: 'sum by (worker_type) (temporal_worker_task_slots_used)',
            legend: '{{worker_type}}',
          },
        ],
      },
      {
        title: 'Time of requests to the server',
        unit: 's',
        targets: [percentile(95, 'temporal_request_latency_seconds', 'operation')],
      },
      {
        title: 'Requests that failed, a second',
        unit: 'ops',
        targets: [rate('temporal_request_failure_total', 'operation, status_code')],
      },
      {
        title: 'Queues that Temporal did not tell of',
        unit: 'short',
        targets: [{ expr: 'sum by (queue) (rollouts_queue_unknown)', legend: '{{queue}}' }],
      },
      {
        title: 'Workers: event loop, p99',
        help: 'Time between two looks at it, which are 0.1 s apart where nothing holds it up.',
        unit: 's',
        targets: [
          {
            expr: 'max by (job, instance) (nodejs_eventloop_lag_p99_seconds)',
            legend: '{{job}} {{instance}}',
          },
        ],
      },
    ],
  },
  {
    uid: 'rollouts-batches',
    title: 'Rollouts: groups and batches',
    panels: [
      {
        title: 'Groups by verdict, a second',
        unit: 'ops',
        targets: [rate('rollouts_groups_total', 'kind, verdict')],
      },
      {
        title: 'Groups of batches by fate, a second',
        unit: 'ops',
        targets: [rate('rollouts_batch_groups_total', 'fate')],
      },
      {
        title: 'Time of a batch',
        unit: 's',
        targets: [percentile(50, 'rollouts_batch_seconds'), percentile(95, 'rollouts_batch_seconds')],
      },
      {
        title: 'Batches by end, an hour',
        unit: 'short',
        targets: [{ expr: 'sum by (end) (increase(rollouts_batches_total[1h]))', legend: '{{end}}' }],
      },
      {
        title: 'Tokens of a sample: admitted and discarded',
        help: 'Far apart: what is trained on is shorter or longer than what was sampled.',
        unit: 'short',
        targets: [{ expr: 'avg by (fate) (rollouts_batch_sample_tokens)', legend: '{{fate}}' }],
      },
    ],
  },
  {
    uid: 'rollouts-gateway',
    title: 'Rollouts: gateway',
    panels: [
      {
        title: 'Requests, a second',
        unit: 'ops',
        targets: [rate('rollouts_http_request_seconds_count', 'method, route')],
      },
      {
        title: 'Answers by status, a second',
        unit: 'ops',
        targets: [rate('rollouts_http_request_seconds_count', 'code')],
      },
      {
        title: 'Time of a request, p95',
        unit: 's',
        targets: [percentile(95, 'rollouts_http_request_seconds', 'method, route')],
      },
      {
        title: 'Requests under way',
        unit: 'short',
        targets: [{ expr: 'sum(rollouts_http_requests_open)', legend: 'open' }],
      },
    ],
  },
];
