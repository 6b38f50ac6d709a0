import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { findProgram } from '../../config/programs.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { bottleneck } from '../../scripts/docs/dashboards/bottleneck.ts';
import { components } from '../../scripts/docs/dashboards/components.ts';
import { grafanaJson } from '../../scripts/docs/dashboards/model.ts';
import { METRICS, type MetricName, type MetricSpec } from '../../workers/metrics/table.ts';

const folder = path.join(PROJECT_ROOT, 'monitoring');
const read = (name: string) => readFileSync(path.join(folder, name), 'utf8');
const dashboards = [bottleneck, ...components];
const expressions = dashboards.flatMap(({ panels }) =>
  panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
);
const alerts = read('alerts.yml');

/** Of the Temporal SDK, of prom-client and of Prometheus: rollouts of a real stack show that they are there. */
const OTHERS = new Set([
  'temporal_request_failure_total',
  'temporal_request_latency_seconds',
  'temporal_worker_task_slots_used',
  'temporal_workflow_task_schedule_to_start_latency_seconds',
  'process_cpu_seconds_total',
  'process_start_time_seconds',
  'nodejs_eventloop_lag_p99_seconds',
]);

/** Names of metrics in PromQL, a histogram's series under its own name, with the labels of their selectors. */
function namesIn(text: string): { name: string; labels: string[] }[] {
  const found = text.matchAll(/\b((?:rollouts|temporal|process|nodejs)_\w+)(?:\{([^}]*)\})?/g);
  return [...found].map(([, full = '', selector = '']) => {
    const base = full.replace(/_(bucket|sum|count)$/, '');
    const spec: MetricSpec | undefined = METRICS[base as MetricName];
    const name = spec?.kind === 'histogram' || OTHERS.has(base) ? base : full;
    return { name, labels: [...selector.matchAll(/(\w+)\s*[=!]/g)].map(([, label]) => label as string) };
  });
}

test('the dashboards are those of the code; `npm run docs` writes them', () => {
  assert.deepEqual(
    readdirSync(path.join(folder, 'grafana')).sort(),
    dashboards.map(({ uid }) => `${uid}.json`).sort(),
  );
  for (const dashboard of dashboards) {
    const text = read(`grafana/${dashboard.uid}.json`);
    assert.equal(text, grafanaJson(dashboard));
    assert.equal(JSON.parse(text).uid, dashboard.uid);
  }
});

test('every expression of a dashboard or an alert names metrics and labels that there are', () => {
  const rules = [...alerts.matchAll(/^ +expr: (.*)$/gm)].map(([, expr]) => expr as string);
  assert.ok(expressions.length > 60 && rules.length > 10);
  for (const expr of [...expressions, ...rules]) {
    const names = namesIn(expr);
    assert.ok(names.length > 0 || /^up\{/.test(expr), expr);
    for (const { name, labels } of names) {
      const spec: MetricSpec | undefined = METRICS[name as MetricName];
      assert.ok(spec || OTHERS.has(name), `${name} in ${expr}`);
      for (const label of labels) {
        if (spec && label !== 'job')
          assert.ok(spec.labels?.includes(label), `${label} of ${name} in ${expr}`);
      }
    }
  }
});

test('every metric is on a dashboard', () => {
  const shown = new Set(expressions.flatMap((expr) => namesIn(expr).map(({ name }) => name)));
  assert.deepEqual(
    Object.keys(METRICS).filter((name) => !shown.has(name)),
    [],
  );
});

test('dashboards and alerts ask for jobs that are scraped', () => {
  const jobs = [...read('prometheus.yml').matchAll(/job_name: (\S+)/g)].map(([, job]) => job);
  for (const [, job] of [...expressions, alerts].join('\n').matchAll(/job="([^"]+)"/g))
    assert.ok(jobs.includes(job), job);
});

const promtool = findProgram(['promtool']);
test('Prometheus’ own checker has nothing against configuration and rules', {
  skip: promtool === '' && 'no promtool on this machine',
}, () => {
  const said = execFileSync(promtool, ['check', 'config', 'prometheus.yml'], {
    cwd: folder,
    encoding: 'utf8',
  });
  assert.match(said, /SUCCESS: 15 rules found/);
});
