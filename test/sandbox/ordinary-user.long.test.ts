import assert from 'node:assert/strict';
import test from 'node:test';
import { NOT_ROOT, testAsNobody } from '../support/nobody.ts';

test('a host of an ordinary user keeps the same promises in bubblewrap', { skip: NOT_ROOT }, async (t) => {
  const said = await testAsNobody(t, 'bubblewrap', [
    'test/sandbox/conformance.test.ts',
    'test/sandbox/bombs.test.ts',
    'test/sandbox/isolation.test.ts',
  ]);
  assert.match(said, /^ok \d+ - bubblewrap: what every backend does$/m);
  assert.match(said, /^ok \d+ - bubblewrap: bombs go off in their own sandbox only$/m);
  assert.match(said, /^ok \d+ - what runs in bubblewrap$/m);
});
