import assert from 'node:assert/strict';
import test from 'node:test';
import { Client, Connection } from '@temporalio/client';
import { NativeConnection } from '@temporalio/worker';
import { lookUpIn } from '../../workers/sandbox-host/lookup.ts';
import { startTestServer } from '../support/temporal.ts';

test('a rollout is open until its run is closed, replaced or unknown to Temporal', async () => {
  const server = await startTestServer();
  const connection = await Connection.connect({ address: server.address });
  const native = await NativeConnection.connect({ address: server.address });
  const client = new Client({ connection });
  const isOpen = lookUpIn(new Client({ connection: native }));
  try {
    const start = { taskQueue: 'nobody', workflowId: 'rollout-1' };
    const first = await client.workflow.start('rollout', start);
    assert.equal(await isOpen('rollout-1', first.firstExecutionRunId), 'open');
    await first.terminate();
    assert.equal(await isOpen('rollout-1', first.firstExecutionRunId), 'closed');
    const second = await client.workflow.start('rollout', start);
    assert.equal(await isOpen('rollout-1', first.firstExecutionRunId), 'closed');
    assert.equal(await isOpen('rollout-1', second.firstExecutionRunId), 'open');
    assert.equal(await isOpen('rollout-2', first.firstExecutionRunId), 'closed');
    await second.cancel();
    assert.equal(await isOpen('rollout-1', second.firstExecutionRunId), 'open');
  } finally {
    await connection.close();
    await native.close();
    await server.stop();
  }
});
