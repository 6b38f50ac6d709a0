import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { Connection } from '@temporalio/client';
import { stringify } from 'smol-toml';
import { Archive, openArchive } from '../../activities/trajectory/archive.ts';
import { moveOld } from '../../activities/trajectory/move-old.ts';
import { S3Objects } from '../../activities/trajectory/s3-objects.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { registerSearchAttributes } from '../../temporal-config/search-attributes.ts';
import { startTestServer } from '../support/temporal.ts';
import { until } from '../support/until.ts';
import { buildVersitygw, CREDENTIALS, type S3Server, startS3 } from '../support/versitygw.ts';
import { age, assertWhole, failing, filesOf, keep, movesWhatIsOld, options } from './archive.ts';

/*
 * The archive on a real S3-compatible server, Versity's gateway, and the command with a real Temporal server. Run by
 * `npm run test:archive`; builds the gateway with Go.
 */

let root: string;
let program: string;
let server: S3Server;
const at = () => ({ to: 's3://rollouts/production', endpoint: server.endpoint });
const portOf = () => Number(new URL(server.endpoint).port);
const data = () => path.join(root, 'data');

before(async () => {
  Object.assign(process.env, CREDENTIALS);
  root = await mkdtemp(path.join(tmpdir(), 's3-'));
  await mkdir(data());
  program = await buildVersitygw();
  server = await startS3(program, data());
  const client = new S3Client({ endpoint: server.endpoint, region: 'us-east-1', forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: 'rollouts' }));
  client.destroy();
});
after(async () => {
  await server?.kill();
  await rm(root, { recursive: true, force: true });
});

test('what is old is moved to a bucket, read from there, and nothing else is touched', async () => {
  const archive = openArchive(at());
  assert.ok(archive);
  await movesWhatIsOld(path.join(root, 'store'), archive);
});

test('a wrong key, a wrong bucket and a server that is gone are named, and nothing is deleted', async () => {
  const store = new TrajectoryStore(path.join(root, 'refused'));
  await keep(store, 'a');
  await age(store, 'a');
  const problemAt = async (place: Parameters<typeof openArchive>[0]) => {
    const archive = openArchive(place);
    assert.ok(archive);
    const { problems } = await moveOld(store, archive, options());
    assert.equal((await filesOf(store, 'a')).length, 3);
    return problems.map(({ problem }) => problem).join();
  };
  assert.match(await problemAt({ ...at(), to: 's3://nobodys' }), /NoSuchBucket/);
  const closed = await problemAt({ ...at(), endpoint: 'http://127.0.0.1:1' });
  assert.match(closed, /cannot read s3:\/\/rollouts\/production.*ECONNREFUSED/);
  process.env.AWS_SECRET_ACCESS_KEY = 'another';
  try {
    assert.match(await problemAt(at()), /SignatureDoesNotMatch/);
  } finally {
    Object.assign(process.env, CREDENTIALS);
  }
});

test('the server killed in the middle, the next run ends it', async () => {
  const store = new TrajectoryStore(path.join(root, 'killed'), openArchive(at()));
  const kept = await Promise.all(Array.from({ length: 6 }, (_, index) => keep(store, `r${index}`)));
  for (const { rolloutId } of kept) await age(store, rolloutId);
  const objects = S3Objects.at(at().to, at());
  const broken = failing(objects, 'put', 7, async () => {
    await server.kill();
    throw new Error('killed');
  });
  const { rollouts, problems } = await moveOld(store, broken, options());
  assert.ok(rollouts < 6 && problems.length > 0);
  server = await startS3(program, data(), portOf());
  const again = await moveOld(store, new Archive(objects), options());
  assert.deepEqual([rollouts + again.rollouts, again.problems], [6, []]);
  for (const each of kept) {
    assert.equal((await filesOf(store, each.rolloutId)).length, 1);
    await assertWhole(store, each);
  }
});

test('the command asks Temporal what is open; show and verify read what it has moved', async () => {
  const temporal = await startTestServer();
  try {
    const connection = await Connection.connect({ address: temporal.address });
    await registerSearchAttributes(connection, 'default');
    await connection.close();
    const folder = path.join(root, 'command');
    const file = path.join(root, 'rollouts.toml');
    const values = {
      temporal: { address: temporal.address },
      store: { folder },
      state: { folder: path.join(root, 'state') },
      archive: { ...at(), afterDays: 20 },
    };
    await writeFile(file, stringify(values));
    const store = new TrajectoryStore(folder);
    const ended = await keep(store, 'ended');
    const open = await keep(store, 'begun-again');
    for (const { rolloutId } of [ended, open]) await age(store, rolloutId);
    const client = await RolloutClient.connect(loadConfig({ env: {}, file }));
    await client.start({
      rolloutId: open.rolloutId,
      task: { handler: 'math', id: 'x', data: { question: '1 + 1?', answer: '#### 2' } },
    });
    const query = `WorkflowId = '${open.rolloutId}'`;
    await until(async () => (await client.temporal.workflow.count(query)).count === 1, 'it to be listed');
    await client.close();

    const moved = await rollouts(file, 'archive');
    assert.deepEqual([moved.rollouts, moved.files, moved.problems], [1, 2, []]);
    assert.equal((await filesOf(store, ended.rolloutId)).length, 1);
    assert.equal((await filesOf(store, open.rolloutId)).length, 3);
    const shown = await rollouts(file, 'show', ended.rolloutId);
    assert.deepEqual(shown, { record: ended.result, trajectory: [ended.trajectory] });
    const lines = path.join(root, 'trajectories.jsonl');
    await writeFile(lines, `${JSON.stringify(ended.trajectory)}\n`);
    const verified = await rollouts(file, 'verify', lines);
    assert.deepEqual([verified.sequences, verified.ledgers], [1, 1]);
  } finally {
    await temporal.stop();
  }
});

/** The result of a command. */
async function rollouts(file: string, ...args: string[]): Promise<Record<string, unknown>> {
  const command = path.join(PROJECT_ROOT, 'bin', 'rollouts.mjs');
  const argv = [command, ...args, '--config', file, '--json'];
  const { stdout } = await promisify(execFile)(process.execPath, argv, { maxBuffer: 1e8 });
  return JSON.parse(stdout);
}
