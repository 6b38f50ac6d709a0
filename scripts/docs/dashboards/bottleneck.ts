import type { Dashboard } from './model.ts';
import { percentile, rate, share } from './promql.ts';

const STAGES = 'activity=~"init|run|evaluate"';

/** How full each part is, from 0 to 1: the fullest holds the others up. */
const PRESSURE: Readonly<Record<string, string>> = {
  'init slots': full('init'),
  'run slots': full('run'),
  'grading slots': full('evaluate'),
  'sandboxes of agents': room('agent'),
  'sandboxes of graders': room('grader'),
  // A server that lets requests wait has as much as it can do.
  'LLM servers':
    'clamp_max(sum(max by (server) (rollouts_llm_server_requests{state="waiting"})) / ' +
    'clamp_min(sum(max by (server) (rollouts_llm_server_requests{state="running"})), 1), 1)',
  'workers’ processors': busy('rollouts-workers'),
  'sandbox hosts’ processors': busy('rollouts-hosts'),
};

function full(activity: string): string {
  const filter = `{activity="${activity}"}`;
  return `sum(rollouts_activity_running${filter}) / sum(rollouts_activity_slots${filter})`;
}

function room(purpose: string): string {
  const filter = `{purpose="${purpose}"}`;
  return `sum(rollouts_sandboxes${filter}) / sum(rollouts_sandbox_capacity${filter})`;
}

/** A process of Node computes on one processor. */
function busy(job: string): string {
  return `max(rate(process_cpu_seconds_total{job="${job}"}[5m]))`;
}

const pressures = Object.entries(PRESSURE).map(
  ([part, expr]) => `label_replace(${expr}, "part", "${part}", "", "")`,
);

export const bottleneck: Dashboard = {
  uid: 'rollouts-bottleneck',
  title: 'Rollouts: what is the bottleneck now?',
  panels: [
    {
      title: 'The fullest part',
      help: 'Near 1: this part holds the throughput back. All far below 1: too few rollouts are open.',
      unit: 'percentunit',
      targets: [{ expr: `topk(1, ${pressures.join(' or ')})`, legend: '{{part}}' }],
      stat: true,
    },
    {
      title: 'How full each part is',
      unit: 'percentunit',
      targets: [{ expr: pressures.join(' or '), legend: '{{part}}' }],
    },
    {
      title: 'Rollouts that end, a second',
      unit: 'ops',
      targets: [rate('rollouts_ended_total', 'outcome')],
    },
    {
      title: 'Where rollouts spend their time',
      help: 'queue: nobody had room for them.',
      unit: 'percentunit',
      targets: [
        share(
          'sum by (part) (rate(rollouts_part_seconds_sum{part!="total"}[5m]))',
          'on () group_left sum(rate(rollouts_part_seconds_sum{part="total"}[5m]))',
          '{{part}}',
        ),
      ],
    },
    {
      title: 'Wait for a stage',
      help: 'A stage that waits needs slots, hosts or machines.',
      unit: 's',
      targets: [percentile(95, 'rollouts_activity_wait_seconds', 'activity', STAGES)],
    },
    {
      title: 'Tasks that wait in Temporal',
      unit: 'short',
      targets: [{ expr: 'max by (queue) (rollouts_queue_backlog_tasks)', legend: '{{queue}}' }],
    },
    {
      title: 'What agents’ time goes to',
      help: 'Of all runs under way: sampling or tools. The rest is the agent itself and the wait for a server.',
      unit: 'percentunit',
      targets: [
        share(ofRuns('rollouts_llm_request_seconds_sum'), runs(), 'sampling'),
        share(ofRuns('rollouts_tool_seconds_sum'), runs(), 'tools'),
      ],
    },
    {
      title: 'LLM servers: requests',
      unit: 'short',
      targets: [
        {
          expr: 'sum by (state) (max by (server, state) (rollouts_llm_server_requests))',
          legend: '{{state}}',
        },
      ],
    },
  ],
};

function ofRuns(name: string): string {
  return `sum(rate(${name}[5m]))`;
}

function runs(): string {
  return ofRuns('rollouts_activity_seconds_sum{activity="run"}');
}
