import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { findProgram } from '../../config/programs.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { bottleneck } from '../../scripts/docs/dashboards/bottleneck.ts';
import { components } from '../../scripts/docs/dashboards/components.ts';
import { TestStack } from '../support/stack.ts';
import { freePort } from '../support/temporal.ts';
import { until } from '../support/until.ts';

/*
 * A real Prometheus scrapes a real stack, by the configuration and the rules of monitoring/, while rollouts run. Run by
 * `npm run test:monitoring`; needs the program `prometheus` (of Debian's package of that name).
 */

let stack: TestStack;
let api: string;
let stop: () => Promise<void>;

interface Answer {
  readonly status: string;
  readonly error?: string;
  readonly data: { readonly result: { metric: Record<string, string>; value: [number, string] }[] };
}

async function ask(expr: string): Promise<Answer['data']['result']> {
  const answer = (await (await fetch(`${api}/query?query=${encodeURIComponent(expr)}`)).json()) as Answer;
  assert.equal(answer.status, 'success', `${expr}: ${answer.error}`);
  return answer.data.result;
}
const numberOf = async (expr: string) => Number((await ask(expr))[0]?.value[1] ?? Number.NaN);

before(async () => {
  const prometheus = findProgram(['prometheus']);
  assert.notEqual(prometheus, '', 'the program prometheus is not on PATH');
  stack = await TestStack.create();
  stack.up('--no-sample');
  await stack.says(/The stack is up/);
  const [worker = '', host = ''] = stack.endpoints().metrics.map((url) => new URL(url).host);
  const port = await freePort();
  const shipped = readFileSync(path.join(PROJECT_ROOT, 'monitoring', 'prometheus.yml'), 'utf8');
  const config = path.join(stack.folder, 'prometheus.yml');
  await writeFile(
    config,
    shipped
      .replace('127.0.0.1:9464', worker)
      .replace('127.0.0.1:9465', host)
      .replace('alerts.yml', path.join(PROJECT_ROOT, 'monitoring', 'alerts.yml'))
      .replaceAll('15s', '1s'),
  );
  const child = spawn(
    prometheus,
    [
      `--config.file=${config}`,
      `--storage.tsdb.path=${path.join(stack.folder, 'prometheus')}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: 'ignore' },
  );
  const ended = once(child, 'exit');
  stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  api = `http://127.0.0.1:${port}/api/v1`;
  await until(
    async () => (await fetch(`${api}/query?query=1`).catch(() => undefined))?.ok ?? false,
    'Prometheus',
  );
});
after(async () => {
  await stop?.();
  await stack?.dispose();
});

test('both processes are scraped', async () => {
  await until(async () => (await numberOf('sum(up{job=~"rollouts-(workers|hosts)"})')) === 2, 'two targets');
});

test('what has run is what Prometheus has; every expression of every dashboard can be asked', async () => {
  const tasks = path.join(PROJECT_ROOT, 'examples', 'tasks', 'arithmetic.jsonl');
  const run = await stack.run(
    'run',
    '--tasks',
    tasks,
    '--handler',
    'math',
    '--limit',
    '3',
    '--samples',
    '2',
    '--json',
  );
  assert.equal(run.code, 0, run.stderr);
  const { outcomes } = JSON.parse(run.stdout);
  await until(async () => (await numberOf('sum(rollouts_ended_total)')) === 6, 'six rollouts');
  assert.equal((await numberOf('sum(rollouts_ended_total{outcome="completed"})')) || 0, outcomes.completed);
  // A rate needs two scrapes with the new values.
  await until(async () => (await numberOf('sum(rate(rollouts_ended_total[5m]))')) > 0, 'a rate');
  const empty: string[] = [];
  for (const { title, panels } of [bottleneck, ...components]) {
    for (const panel of panels) {
      const results = await Promise.all(panel.targets.map(({ expr }) => ask(expr)));
      if (results.every((result) => result.length === 0)) empty.push(`${title}: ${panel.title}`);
    }
  }
  process.stdout.write(`panels without data: ${empty.join('; ')}\n`);
  const fullest = await ask(
    (bottleneck.panels[0] as (typeof bottleneck.panels)[0]).targets[0]?.expr as string,
  );
  assert.equal(fullest.length, 1);
  process.stdout.write(`the fullest part: ${fullest[0]?.metric.part} ${fullest[0]?.value[1]}\n`);
  assert.ok(!empty.some((each) => /bottleneck/.test(each)), empty.join('; '));
});

test('the rules are evaluated without an error', async () => {
  const answer = await fetch(`${api}/rules`);
  const { data } = (await answer.json()) as {
    data: { groups: { rules: { name: string; health: string; state: string; lastError?: string }[] }[] };
  };
  const rules = data.groups.flatMap((group) => group.rules);
  assert.equal(rules.length, 15);
  for (const { name, health, lastError } of rules) assert.equal(health, 'ok', `${name}: ${lastError}`);
  // Nobody has started a gateway.
  const down = ['RolloutsProcessDown'];
  assert.deepEqual(
    rules.filter(({ name, state }) => state === 'firing' && !down.includes(name)),
    [],
  );
});
