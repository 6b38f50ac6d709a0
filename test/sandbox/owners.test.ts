import assert from 'node:assert/strict';
import test from 'node:test';
import { Owners } from '../../workers/sandbox-host/backends/owners.ts';

const ALL_IDS = '         0          0 4294967295\n';

test('each sandbox of root is a user of its own, while it lives', {
  skip: process.geteuid?.() !== 0 && 'an ordinary user has no other',
}, () => {
  const owners = new Owners('/state/host/shared', ALL_IDS);
  const ids = Array.from({ length: 4096 }, (_, at) => owners.take(`sandbox-${at}`) as number);
  assert.equal(new Set(ids).size, 4096);
  assert.ok(Math.min(...ids) >= 2_100_000_000 && Math.max(...ids) < 2 ** 31 - 2 ** 17);
  assert.equal(owners.take('sandbox-7'), ids[7]);
  owners.giveBack('sandbox-7');
  owners.giveBack('sandbox-7');
  assert.equal(owners.take('next'), ids[7]);
  const elsewhere = new Owners('/other/host/shared', ALL_IDS).take('sandbox-0') as number;
  assert.ok(!ids.includes(elsewhere), 'hosts of one machine have others');
});

test('where root has few ids, all sandboxes are nobody; an ordinary user has no choice', () => {
  const few = new Owners('/state', '         0       1000          1\n         1     100000      65536\n');
  const expected = process.geteuid?.() === 0 ? 65_534 : null;
  assert.deepEqual([few.take('a'), few.take('b')], [expected, expected]);
});
