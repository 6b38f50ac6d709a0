import type { z } from 'zod';
import { environmentName, unwrapped, valueAt, valueNames } from '../../config/names.ts';
import { ConfigSchema } from '../../config/schema.ts';
import { FAILURES } from '../../contracts/failures.ts';
import { COMPONENTS, METRICS, type MetricSpec } from '../../workers/metrics/table.ts';

const MADE = '<!-- Made by `npm run docs`; a test compares it with the code. -->';

/** docs/failures.md: every failure a rollout can end with. */
export function failuresPage(): string {
  const retries = {
    stage: 'the stage again',
    rollout: 'a new attempt from init',
    both: 'the stage again, then a new attempt',
    never: 'none',
  };
  const rows = Object.entries(FAILURES).map(
    ([type, kind]) =>
      `| \`${type}\` | ${kind.stage} | ${kind.cause} | ${retries[kind.retry]} | ${kind.advice} |`,
  );
  return [
    '# Failures',
    MADE,
    '',
    'A failed rollout has one of these types, with the stage and a message, in its record and as the type of',
    'the failure in the Temporal UI. None of them is ever a reward. What the policy caused (a command that',
    'failed, a malformed call) is no failure: it is an outcome and is graded.',
    '',
    '| type | stage | whose fault | retried by | what to do |',
    '|---|---|---|---|---|',
    ...rows,
    '',
  ].join('\n');
}

/** docs/configuration.md: every value. */
export function configurationPage(): string {
  const defaults = ConfigSchema.parse({});
  const rows = valueNames().map((name) => {
    const value = valueAt(defaults, name);
    const shown = value === undefined ? 'not set' : `\`${JSON.stringify(value)}\``;
    return `| \`${name}\` | \`${environmentName(name)}\` | ${shown} | ${descriptionOf(name)} |`;
  });
  return [
    '# Configuration',
    MADE,
    '',
    'Values come from flags, else environment variables, else `rollouts.toml` in the checkout (or the file that',
    '`ROLLOUTS_CONFIG` or `--config` names), else the stack that runs in this checkout, else the default.',
    '`rollouts config` prints what is in force and where each value comes from. Lists and objects in',
    'environment variables are JSON. How Temporal is reached (TLS, API keys) also follows Temporal’s own',
    'standard client configuration: `TEMPORAL_*` variables and `temporal.toml`.',
    '',
    '```toml',
    '[workers]',
    'evalSlots = 16',
    '',
    '[rollout.sampling]',
    'temperature = 0.7',
    '```',
    '',
    '| value | environment variable | default | meaning |',
    '|---|---|---|---|',
    ...rows,
    '',
  ].join('\n');
}

/** docs/metrics.md: every metric, by component. */
export function metricsPage(): string {
  const all = Object.entries(METRICS) as [string, MetricSpec][];
  const sections = Object.entries(COMPONENTS).flatMap(([component, where]) => [
    `## ${component}`,
    '',
    where,
    '',
    '| metric | kind | labels | meaning |',
    '|---|---|---|---|',
    ...all
      .filter(([, spec]) => spec.component === component)
      .map(([name, { kind, labels = [], help }]) => {
        const shown = labels.map((label) => `\`${label}\``).join(', ') || '–';
        return `| \`${name}\` | ${kind} | ${shown} | ${help} |`;
      }),
    '',
  ]);
  return [
    '# Metrics',
    MADE,
    '',
    'Workers and sandbox hosts serve Prometheus’ text format at `/metrics` of a port of their own (`metrics.workerPort`,',
    '`metrics.hostPort`; `rollouts up` prints where), on the loopback unless `metrics.address` says otherwise; the',
    '[gateway](gateway.md) at `/metrics` of its port, to tokens with the scope `read` where it has tokens. Workers and hosts',
    'add what the Temporal SDK counts itself (`temporal_…`: slots, pollers, requests, workflow tasks), and every process what',
    'it uses (`process_…`, `nodejs_…`). No label has a value for each rollout, task or call.',
    '',
    'What concerns the whole cluster (queues, open rollouts, the pool) is told by each process that knows it: take',
    '`max by (…)`, not `sum`. Counts are of what a process did: take `sum`. Dashboards, alert rules and a scrape',
    'configuration are in [monitoring/](../monitoring).',
    '',
    ...sections,
  ].join('\n');
}

function descriptionOf(name: string): string {
  let schema: z.ZodType = ConfigSchema;
  let description = '';
  for (const key of name.split('.')) {
    const shape: Record<string, z.ZodType> = (unwrapped(schema) as z.ZodObject).shape;
    schema = shape[key] as z.ZodType;
    description = schema.description ?? '';
  }
  return description;
}
