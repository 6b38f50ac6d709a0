import assert from 'node:assert/strict';
import test from 'node:test';
import { WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { NOT_ROOT, testAsNobody } from '../support/nobody.ts';

const skip = WITHOUT_APPTAINER || NOT_ROOT;

test('a host of an ordinary user keeps the same promises in apptainer', { skip }, async (t) => {
  const said = await testAsNobody(t, 'apptainer|image', [
    'test/sandbox/conformance.test.ts',
    'test/sandbox/bombs.test.ts',
    'test/apptainer/isolation.test.ts',
    'test/apptainer/images.test.ts',
  ]);
  assert.match(said, /^ok \d+ - apptainer: what every backend does$/m);
  assert.match(said, /^ok \d+ - apptainer: bombs go off in their own sandbox only$/m);
  assert.match(said, /^ok \d+ - what runs in apptainer$/m);
  assert.match(said, /^ok \d+ - images$/m);
});
