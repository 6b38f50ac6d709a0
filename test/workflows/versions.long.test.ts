import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { Client, Connection, WorkflowFailedError } from '@temporalio/client';
import { loadConfig } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { DEPLOYMENT, WORKFLOW_QUEUE } from '../../contracts/queues.ts';
import { makeWorkers } from '../../workers/roles.ts';
import { startTestServer } from '../support/temporal.ts';
import { until } from '../support/until.ts';

test('workflow workers of a version have no work until it is current, then all that is open', async (t) => {
  const server = await startTestServer();
  const { address } = server;
  const config = loadConfig({ env: {}, flags: { temporal: { address }, workers: { buildId: 'new' } } });
  const { workers, close } = await makeWorkers(config, ['workflow']);
  const running = Promise.all(workers.map((worker) => worker.run()));
  const connection = await Connection.connect({ address });
  t.after(async () => {
    for (const worker of workers) worker.shutdown();
    await running;
    await close();
    await connection.close();
    await server.stop();
  });
  const succeeds = (...args: string[]) =>
    promisify(execFile)(loadTools().temporal, ['worker', 'deployment', ...args, '--address', address]).then(
      () => true,
      () => false,
    );
  await until(() => succeeds('describe', '--name', DEPLOYMENT), 'the server knows the version');
  const { workflow } = new Client({ connection });
  // It fails as soon as any worker looks at it.
  const handle = await workflow.start('rollout', {
    workflowId: 'waits',
    taskQueue: WORKFLOW_QUEUE,
    args: [{}],
  });
  assert.equal((await handle.fetchHistory()).events?.length, 2, 'started and scheduled');
  // A busy server may take longer than it gives itself; it can be told again.
  await until(
    () => succeeds('set-current-version', '--deployment-name', DEPLOYMENT, '--build-id', 'new', '--yes'),
    'the version is current',
  );
  await assert.rejects(handle.result(), (error) => error instanceof WorkflowFailedError);
  const { events } = await handle.fetchHistory();
  const decided = events?.find(
    ({ workflowTaskCompletedEventAttributes }) => workflowTaskCompletedEventAttributes,
  );
  assert.equal(decided?.workflowTaskCompletedEventAttributes?.deploymentVersion?.buildId, 'new');
});
