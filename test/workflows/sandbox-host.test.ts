import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WORKFLOW_QUEUE } from '../../contracts/queues.ts';
import { HOST_WORKFLOW } from '../../contracts/sweep.ts';
import { until } from '../support/until.ts';
import { scriptedService } from './scripted-service.ts';

const service = scriptedService();

test('a host that is away for too long is no host any more', async () => {
  const { workflow } = service.client.temporal;
  const start = (host: string, awaySeconds?: number) =>
    workflow.start(HOST_WORKFLOW, {
      workflowId: `host:${host}`,
      taskQueue: WORKFLOW_QUEUE,
      args: [{ host, awaySeconds }],
    });
  const gone = await start('gone', 1);
  const waitedFor = await start('waited-for');
  await gone.result();
  const stateOf = async (handle: typeof gone) => (await handle.describe()).status.name;
  assert.equal(await stateOf(gone), 'COMPLETED');
  await until(async () => (await waitedFor.describe()).raw.pendingActivities?.length === 1, 'it waits');
  assert.equal(await stateOf(waitedFor), 'RUNNING');
  await waitedFor.terminate();
});
