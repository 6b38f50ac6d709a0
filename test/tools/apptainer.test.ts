import assert from 'node:assert/strict';
import test from 'node:test';
import { editor } from '../../activities/tools/editor.ts';
import { ipython } from '../../activities/tools/ipython.ts';
import { loadTools } from '../../config/tools.ts';
import { WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { Bench } from './support.ts';

test('editor and kernel work in apptainer', { skip: WITHOUT_APPTAINER }, async (t) => {
  const bench = await Bench.start(t, ipython.sandbox?.(loadTools()), 'apptainer');
  const edit = (command: string, args = {}) => bench.call(editor, { command, path: 'a.py', ...args });
  await edit('create', { file_text: 'def double(x):\n\treturn x * 3\n' });
  await edit('str_replace', { old_str: '* 3', new_str: '* 2' });
  const run = (code: string, timeoutMs?: number) => bench.call(ipython, { code }, timeoutMs);
  assert.deepEqual(await run('import a; a.double(21)'), { status: 'ok', exitCode: 0, text: '42' });
  assert.match((await run('while True: pass', 500)).text, /KeyboardInterrupt[\s\S]*interrupted after 0\.5 s/);
  assert.match(
    (await run('import os; os.kill(os.getpid(), 9)')).text,
    /the kernel died \(killed by signal 9\)/,
  );
  assert.equal((await run('1 + 1')).text, '2');
  assert.equal((await edit('undo')).text, 'Undone.');
  assert.match((await bench.call(editor, { command: 'view', path: '/etc/passwd' })).text, /outside/);
});
