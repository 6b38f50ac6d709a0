import assert from 'node:assert/strict';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { Archive } from '../../activities/trajectory/archive.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { asArray, streamTrajectory } from '../../activities/trajectory/trajectory-stream.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { isOpen } from '../support/open-files.ts';
import { until } from '../support/until.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'stream-'));
after(() => rmSync(folder, { recursive: true }));
// A file that is left to the garbage collector is told so.
const warnings: Error[] = [];
process.on('warning', (warning) => warnings.push(warning));
const store = new TrajectoryStore(folder);
const sequences = [0, 1].map((sequence_index) => ({ sequence_index, messages: ['a\nb, [é]'] }));

/** A trajectory of these sequences. */
const kept = (rolloutId: string) =>
  store.putTrajectory(
    { rolloutId, workflowRunId: 'run', attempt: 1 },
    sequences.map(
      (one) =>
        ({ ...one, turns: [], input_ids: [1], output_ids: [2], loss_mask: [1] }) as never as Trajectory,
    ),
  );

test('lines in parts of any size become an array', async () => {
  const parts = fc.array(
    fc.json().map((one) => JSON.stringify(JSON.parse(one))),
    { minLength: 1 },
  );
  await fc.assert(
    fc.asyncProperty(parts, fc.integer({ min: 1, max: 9 }), async (lines, size) => {
      const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
      const cut = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
        bytes.subarray(at * size, (at + 1) * size),
      );
      const array = await text(asArray(Readable.from(cut, { objectMode: false })));
      assert.equal(array, `[${lines.join(',')}]`);
    }),
    { numRuns: 50 },
  );
});

test('a trajectory is read as it is taken, from the store or its archive, and closed', async () => {
  const ref = await kept('one');
  const file = fileURLToPath(ref.uri);
  const lines = await text(await streamTrajectory(ref));
  assert.deepEqual(JSON.parse(lines.split('\n')[1] as string).messages, sequences[1]?.messages);
  assert.equal(Buffer.byteLength(lines), ref.bytes);
  await until(() => !isOpen(file), 'the file to be closed');

  const left = await streamTrajectory(ref);
  assert.equal(isOpen(file), true);
  asArray(left).destroy();
  await until(() => !isOpen(file), 'a file whose reader has gone to be closed');

  renameSync(file, `${file}.away`);
  const name = file.split(path.sep).slice(-3).join('/');
  const packed = gzipSync(lines);
  const archive = new Archive({
    place: 'memory',
    put: async () => {},
    get: async (asked) => (asked === `${name}.gz` ? packed : undefined),
  });
  assert.equal(await text(await streamTrajectory(ref, archive)), lines);
  await assert.rejects(streamTrajectory(ref), { type: 'StoreFailed', message: /no such file there$/ });
  packed.set([0, 0, 0, 0], packed.length - 8);
  await assert.rejects(streamTrajectory(ref, archive), { type: 'StoreFailed' });
});

test('what is not as it was kept is refused before anything is sent', async () => {
  const ref = await kept('two');
  const file = fileURLToPath(ref.uri);
  writeFileSync(file, 'other');
  await assert.rejects(streamTrajectory(ref), { type: 'StoreCorrupt' });
  assert.equal(isOpen(file), false);
  assert.deepEqual(warnings, []);
});
