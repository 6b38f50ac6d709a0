import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../config/load.ts';
import { makeLogger } from '../../workers/log.ts';
import { installRuntime } from '../../workers/runtime.ts';
import { until } from '../support/until.ts';
import { fail, report } from '../workflows/scripted.ts';
import { scriptedService } from '../workflows/scripted-service.ts';

const lines: Record<string, unknown>[] = [];
const config = loadConfig({ env: {}, flags: { sandbox: { host: 'host-7' } } });
const logger = makeLogger('worker', config, { write: (line) => void lines.push(JSON.parse(line)) });
await installRuntime(logger, config.log, { metrics: false });

const service = scriptedService();

test('what a rollout’s workflow says has its rollout, attempt, stage and host', async () => {
  service.workers.script.run = async ({ attempt }) => (attempt < 3 ? fail('SandboxLost') : report);
  service.workers.script.release = async () => ({
    processesKilled: 0,
    released: { killMs: 1, ms: 1 },
    problem: 'full',
  });
  const task = { handler: 'math', id: 'task-1', data: { question: 'q', answer: '1' } };
  await service.client.execute({ rolloutId: 'b:t:3', task, attempts: { rollout: 3, stage: 1 } });
  const said = () => lines.filter(({ msg }) => msg === 'the ledger stays on the host');
  await until(() => said().length === 2, 'both lines');
  assert.deepEqual(
    said().map(({ rollout, attempt, stage, host }) => [rollout, attempt, stage, host]),
    [1, 2].map((attempt) => ['b:t:3', attempt, 'run', 'host-7']),
  );
});
