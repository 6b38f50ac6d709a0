import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '@temporalio/client';
import Fastify from 'fastify';
import { answerProblems } from '../../gateway/problems.ts';

/** As Temporal's client throws what comes of a call, wrapped in an error of its own. */
function fromTemporal(code: number, details: string): Error {
  const cause = Object.assign(new Error(`${code}: ${details}`), { code, details, metadata: {} });
  return new ServiceError('Failed to query Workflow', { cause });
}

test('what Temporal does not answer may be tried again; what it finds wrong is the caller’s', async () => {
  const app = Fastify();
  answerProblems(app);
  const errors: Record<string, Error> = {
    away: fromTemporal(14, 'connection refused'),
    late: fromTemporal(4, 'no worker has answered'),
    wrong: fromTemporal(3, 'invalid page token'),
    ours: new Error('a slip'),
  };
  app.get<{ Params: { what: string } }>('/:what', async ({ params }) => {
    throw errors[params.what];
  });
  const answer = async (what: string) => {
    const { statusCode, headers, body } = await app.inject(`/${what}`);
    return [statusCode, headers['retry-after'], JSON.parse(body).detail];
  };
  assert.deepEqual(await answer('away'), [503, '5', 'Temporal does not answer: connection refused']);
  assert.deepEqual(await answer('late'), [503, '5', 'Temporal does not answer: no worker has answered']);
  assert.deepEqual(await answer('wrong'), [422, undefined, 'invalid page token']);
  assert.deepEqual(await answer('ours'), [500, undefined, 'an error of the gateway; its log has it']);
});
