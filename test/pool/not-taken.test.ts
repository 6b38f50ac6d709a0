import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Client, ServiceError } from '@temporalio/client';
import { PoolClient } from '../../client/pool.ts';

/** As Temporal's client throws what the server says to an update. */
function refusal(code: number): Error {
  const cause = Object.assign(new Error('refused'), { code, details: 'refused', metadata: {} });
  return new ServiceError('Workflow Update failed', { cause });
}

/** A Temporal client whose updates end as the list says, one after the other; a fake, since a real server refuses rarely. */
function answering(...ends: (Error | 'done')[]) {
  const ids: string[] = [];
  const executeUpdate = async (_: string, { updateId }: { updateId: string }) => {
    ids.push(updateId);
    const end = ends.shift();
    if (end instanceof Error) throw end;
    return end;
  };
  const workflow = { start: async () => {}, getHandle: () => ({ executeUpdate }) };
  return { pool: new PoolClient({ workflow } as unknown as Client, { pool: 'p', leaseSeconds: 1 }), ids };
}

test('an update that Temporal does not take is asked for again, as the same one; others are not', async () => {
  const busy = answering(refusal(9), 'done');
  assert.equal(await busy.pool.remove('http://127.0.0.1:1'), 'done');
  assert.equal(busy.ids.length, 2);
  assert.equal(busy.ids[0], busy.ids[1]);
  const away = answering(refusal(14), 'done');
  await assert.rejects(away.pool.remove('http://127.0.0.1:1'), /Workflow Update failed/);
  assert.equal(away.ids.length, 1);
});
