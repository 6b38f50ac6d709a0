import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import fc from 'fast-check';
import { editor } from '../../activities/tools/editor.ts';
import { failure } from '../sandbox/support.ts';
import { Bench } from './support.ts';

test('the editor', async (t) => {
  const bench = await Bench.start(t);
  const { sandbox } = bench;
  const put = (path: string, content: string | Uint8Array, mode?: number) =>
    sandbox.writeFile(`/workspace/${path}`, content, mode);
  const bytes = (path: string) => sandbox.readFile(`/workspace/${path}`);
  const latin = async (path: string) => (await bytes(path)).toString('latin1');
  const edit = (command: string, path: string, args = {}) => bench.call(editor, { command, path, ...args });
  /** An edit that must succeed; returns what the model sees. */
  const done = async (command: string, path: string, args = {}) => {
    const outcome = await edit(command, path, args);
    assert.deepEqual([outcome.status, outcome.exitCode], ['ok', 0], outcome.text);
    return outcome.text;
  };
  /** An edit that must be refused; returns why. */
  const refused = async (command: string, path: string, args = {}) => {
    const outcome = await edit(command, path, args);
    assert.deepEqual([outcome.status, outcome.exitCode], ['ok', 1], outcome.text);
    return outcome.text;
  };
  const replace = (path: string, old_str: string, new_str?: string) =>
    done('str_replace', path, { old_str, ...(new_str === undefined ? {} : { new_str }) });

  await t.test('views files with numbers, ranges and folders', async () => {
    await put('src/lines.txt', 'one\n\ttwo\r\nthree\u2028still three\n');
    await put('src/deep/deeper/hidden.txt', '');
    assert.equal(
      await done('view', 'src/lines.txt'),
      '     1\tone\n     2\t\ttwo\n     3\tthree\u2028still three',
    );
    assert.equal(await done('view', '/workspace/src/lines.txt', { view_range: [2, 2] }), '     2\t\ttwo');
    assert.equal(
      await done('view', 'src/lines.txt', { view_range: [3, -1] }),
      '     3\tthree\u2028still three',
    );
    assert.match(await refused('view', 'src/lines.txt', { view_range: [4, 4] }), /lines from 1 to 3/);
    assert.equal(
      await done('view', '.'),
      'Two levels of the folder, without hidden entries:\nsrc/\nsrc/deep/\nsrc/lines.txt',
    );
    await put('empty', '');
    assert.equal(await done('view', 'empty'), '[the file is empty]');
    assert.match(await refused('view', 'nowhere'), /nowhere: No such file or directory/);
    await put('long', `${'x'.repeat(40_000)}\nlast\n`);
    const long = await done('view', 'long');
    assert.match(long, /x \[24000 characters left out\]\n\[lines 2-2 left out/);
    await bench.sh('seq 1 100000 > many');
    const many = await done('view', 'many');
    const [, from] = /\[lines (\d+)-100000 left out/.exec(many) ?? [];
    assert.match(many, new RegExp(`\n *${Number(from) - 1}\t${Number(from) - 1}\n`));
  });

  await t.test('replaces text literally', async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the braces are text
    const odd = '$& $1 \\1 \\n ${x} %s {0} "quotes" \'single\' `ticks` \\';
    await put('literal', 'begin OLD.* end\n');
    await replace('literal', 'OLD.*', odd);
    assert.equal((await bytes('literal')).toString(), `begin ${odd} end\n`);
    await replace('literal', odd);
    assert.equal(await latin('literal'), 'begin  end\n');
  });

  await t.test('keeps tabs, spaces at line ends and the state of the last line', async () => {
    await put('Makefile', 'all:\n\tcc  -o x \t\n\t@echo "a\tb"');
    await replace('Makefile', '\tcc', '\tgcc');
    assert.equal(await latin('Makefile'), 'all:\n\tgcc  -o x \t\n\t@echo "a\tb"');
    assert.match(
      await refused('str_replace', 'Makefile', { old_str: '    gcc', new_str: 'x' }),
      /does not occur: nothing was changed\. It does with other white space/,
    );
  });

  await t.test('line ends stay what they are', async () => {
    await put('dos.txt', 'a\r\nb\r\nc\r\n');
    await replace('dos.txt', 'a\nb\n', 'one\ntwo\nthree\n');
    assert.equal(await latin('dos.txt'), 'one\r\ntwo\r\nthree\r\nc\r\n');
    await replace('dos.txt', 'c', 'c\nd');
    assert.equal(await latin('dos.txt'), 'one\r\ntwo\r\nthree\r\nc\r\nd\r\n');
    await done('insert', 'dos.txt', { insert_line: 0, insert_text: 'zero' });
    assert.equal(await latin('dos.txt'), 'zero\r\none\r\ntwo\r\nthree\r\nc\r\nd\r\n');
    await put('mixed.txt', 'a\nb\r\nc\nd\r\n');
    await replace('mixed.txt', 'b\nc', 'b\nx\nc');
    assert.equal(await latin('mixed.txt'), 'a\nb\r\nx\r\nc\nd\r\n');
    await replace('mixed.txt', 'a', 'a\na');
    assert.equal(await latin('mixed.txt'), 'a\na\nb\r\nx\r\nc\nd\r\n');
  });

  await t.test('encodings and byte order marks stay what they are', async () => {
    await put('bom.txt', '\ufeffhällo\n');
    assert.equal(await done('view', 'bom.txt'), '     1\thällo');
    await replace('bom.txt', 'hä', 'Hö');
    assert.equal((await bytes('bom.txt')).toString(), '\ufeffHöllo\n');
    await put('latin.txt', Buffer.from('caf\xe9 na\xefve\n', 'latin1'));
    assert.match(await done('view', 'latin.txt'), /encoded in latin-1\]\n {5}1\tcafé naïve$/);
    await replace('latin.txt', 'café', 'thé');
    assert.equal(await latin('latin.txt'), 'th\xe9 na\xefve\n');
    assert.match(
      await refused('str_replace', 'latin.txt', { old_str: 'thé', new_str: '茶' }),
      /encoded in latin-1, which has no '茶': nothing was changed/,
    );
    await put('mixed-up.txt', Buffer.concat([Buffer.from('é '), Buffer.from([0xe9, 0x0a])]));
    await replace('mixed-up.txt', 'é ', 'è ');
    assert.deepEqual(
      await bytes('mixed-up.txt'),
      Buffer.concat([Buffer.from('è '), Buffer.from([0xe9, 0x0a])]),
    );
    await put('wide.txt', Buffer.from('\ufeffwide ü\r\n', 'utf16le'));
    await replace('wide.txt', 'wide', 'wider\nü');
    assert.equal((await bytes('wide.txt')).toString('utf16le'), '\ufeffwider\r\nü ü\r\n');
    await put('binary', Buffer.from([0, 1, 2, 255]));
    assert.match(await refused('view', 'binary'), /binary file/);
  });

  await t.test('a text that is not there, there more than once, or empty is refused with why', async () => {
    await put('three', 'x = 1\ny = 1\nx = 1\naaa\n');
    const before = await latin('three');
    const twice = await refused('str_replace', 'three', { old_str: 'x = 1\n', new_str: 'q' });
    assert.match(twice, /occurs 2 times, at line 1, 3: nothing was changed/);
    assert.match(await refused('str_replace', 'three', { old_str: 'aa', new_str: 'b' }), /occurs 2 times/);
    assert.match(await refused('str_replace', 'three', { old_str: 'z', new_str: 'b' }), /does not occur/);
    assert.match(await refused('str_replace', 'three', { old_str: '', new_str: 'b' }), /old_str is empty/);
    assert.match(await refused('str_replace', 'three', { new_str: 'b' }), /str_replace needs old_str/);
    assert.match(await refused('str_replace', 'three', { old_str: 'y', new_str: 'y' }), /nothing to change/);
    assert.match(await refused('insert', 'three', { insert_line: 9, insert_text: 'q' }), /from 0 to 4/);
    assert.match(await refused('str_replace', 'three', { old_str: 'y', new_str: '\ud800' }), /surrogate/);
    assert.equal(await latin('three'), before);
  });

  await t.test('inserts lines, and keeps a last line without an end', async () => {
    await put('list', 'a\nb');
    await done('insert', 'list', { insert_line: 1, insert_text: 'between' });
    await done('insert', 'list', { insert_line: 3, insert_text: 'end\n' });
    assert.equal(await latin('list'), 'a\nbetween\nb\nend');
    await put('nothing', '');
    await done('insert', 'nothing', { insert_line: 0, insert_text: 'x' });
    assert.equal(await latin('nothing'), 'x\n');
  });

  await t.test('mode, owner, hard links and symlinks stay', async () => {
    await put('real/run.sh', '#!/bin/sh\necho a\n', 0o755);
    await bench.sh('ln -s real/run.sh link; ln real/run.sh hard');
    const before = await bench.sh('stat -c "%a %i %U" real/run.sh');
    await replace('link', 'echo a', 'echo b');
    assert.equal(await bench.sh('cat hard; readlink link'), '#!/bin/sh\necho b\nreal/run.sh\n');
    assert.equal(await bench.sh('stat -c "%a %i %U" real/run.sh'), before);
    await done('undo', 'link');
    assert.equal(await bench.sh('cat hard; readlink link'), '#!/bin/sh\necho a\nreal/run.sh\n');
    await bench.sh('chmod 444 real/run.sh');
    assert.match(await refused('create', 'link', { file_text: 'x' }), /Permission denied/);
    await bench.sh('ln -s gone/new.txt dangling');
    await done('create', 'dangling', { file_text: 'made\n' });
    assert.equal(await bench.sh('cat gone/new.txt; readlink dangling'), 'made\ngone/new.txt\n');
  });

  await t.test('nothing outside the workspace can be seen or changed', async () => {
    await bench.sh(
      'echo secret > /tmp/secret; ln -s /etc/passwd passwd; ln -s /tmp away; ln -s /proc/self/environ env;' +
        'ln -s loop loop; ln -s ../workspace/three inward; mkdir -p /tmp/workspace-not',
    );
    for (const path of [
      '/etc/passwd',
      '/proc/self/environ',
      '/proc/self/root/etc/passwd',
      '../tmp/secret',
      'real/../../tmp/secret',
      '/workspace/../tmp/secret',
      '/workspace-not',
      'passwd',
      'env',
      'away/secret',
      '/',
    ]) {
      assert.match(await refused('view', path), /lies outside the workspace/, path);
      const text = { old_str: 'secret', new_str: 'x', file_text: 'x', insert_line: 0, insert_text: 'x' };
      for (const command of ['create', 'str_replace', 'insert', 'undo']) {
        assert.match(await refused(command, path, text), /outside the workspace/, path);
      }
    }
    assert.match(await refused('create', 'away/new', { file_text: 'x' }), /outside the workspace/);
    assert.match(
      await refused('view', 'passwd'),
      /passwd lies outside the workspace \(it leads to \/etc\/passwd\)/,
    );
    // The first process's view cannot even be looked into to see where it leads.
    assert.match(await refused('view', '/proc/1/root/etc/passwd'), /Permission denied/);
    assert.match(await refused('view', 'loop'), /loop: /);
    assert.match(await refused('view', ''), /path is empty/);
    assert.equal(await bench.sh('cat /tmp/secret; ls /tmp'), 'secret\nsecret\nworkspace-not\n');
    assert.match(await done('view', 'inward'), /x = 1/, 'a link that stays inside is followed');
  });

  await t.test('a folder that becomes a link after it was looked at leads nowhere', async () => {
    const program = readFileSync(new URL('../../activities/tools/editor.py', import.meta.url), 'utf8');
    const late = program.replace(
      /\nmain\(\)\n$/,
      () => `
os.symlink('/tmp', 'was')
for act in (lambda real: opened(real, os.O_WRONLY | os.O_CREAT), read, remove):
    for real in ('/workspace/was/secret', '/workspace/was/workspace-not/x'):
        try:
            act(real)
        except (Refusal, OSError) as error:
            print(error)`,
    );
    const { stdout } = await bench.box.exec(['python3', '-c', late]);
    const refusals = ["[Errno 20] Not a directory: '/workspace/was'", 'its folder was replaced meanwhile'];
    assert.equal(stdout.text, `${refusals.join('\n')}\n`.repeat(3));
    assert.equal(await bench.sh('cat /tmp/secret; ls /tmp/workspace-not; rm was'), 'secret\n');
  });

  await t.test('what is no file of bytes hangs nothing', async () => {
    await bench.sh('mkfifo pipe; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'sock\')"');
    assert.match(await refused('view', 'pipe'), /not a regular file/);
    assert.match(await refused('create', 'pipe', { file_text: 'x' }), /not a regular file/);
    assert.match(await refused('view', 'sock'), /sock: /);
    assert.match(await refused('create', 'src', { file_text: 'x' }), /it is a folder/);
    await bench.sh('truncate -s 900M huge');
    assert.match(await refused('view', 'huge'), /has 943718400 bytes/);
    assert.match(await refused('create', 'd/'.repeat(1500), { file_text: 'x' }), /too many folders/);
  });

  await t.test(
    'arguments of other kinds than the schema says are refused, by the program itself',
    async () => {
      for (const [command, path, args] of [
        ['view', 5, {}],
        ['view', undefined, {}],
        ['bogus', 'x', {}],
        [null, 'x', {}],
        ['create', 'x', { file_text: { a: 1 } }],
        ['view', '.', { view_range: ['1', '2'] }],
        ['view', '.', { view_range: null }],
        ['insert', 'x', { insert_line: true, insert_text: 'x' }],
        ['str_replace', 'x', { old_str: 1, new_str: [] }],
      ] as [string, string, object][]) {
        assert.match(await refused(command, path, args), /must be |needs a path/);
      }
    },
  );

  await t.test('undo goes back edit by edit, and never over a change of another', async () => {
    const steps = ['first\n', 'second\n', 'third\n'];
    await done('create', 'history', { file_text: steps[0] });
    await replace('history', 'first', 'second');
    await done('create', './history', { file_text: steps[2] });
    assert.equal(await done('undo', '/workspace/history'), 'Undone.');
    assert.equal(await latin('history'), steps[1]);
    await bench.sh('echo more >> history');
    assert.match(await refused('undo', 'history'), /changed by something else/);
    await put('history', 'second\n');
    await done('undo', 'history');
    assert.match(await done('undo', 'history'), /^Removed/);
    assert.match(await refused('undo', 'history'), /no edit of this file to undo/);
    assert.equal(await bench.sh('ls -A | grep -c history || true'), '0\n');
    await done('create', 'history', { file_text: 'x' });
    await bench.sh(
      'cd ~/.rollout-editor; for f in */*; do touch $(dirname $f)/other; rm $f; mkfifo $f; done',
    );
    assert.match(await refused('undo', 'history'), /kept of the last edit is damaged/);
  });

  await t.test('one that was killed is told of once at most', async () => {
    await bench.sh('pkill -KILL -f "Views and edits"');
    await edit('view', 'history');
    assert.match(await done('view', 'history'), /x$/);
  });

  await t.test('a workspace that holds Python modules does not change the editor', async () => {
    for (const name of ['json', 'base64', 'hashlib', 're'])
      await put(`${name}.py`, 'raise SystemExit("mine")');
    assert.match(await done('view', 'json.py'), /SystemExit/);
  });

  await t.test('the same call never edits twice, whoever asks again', async () => {
    await put('once', 'x');
    const args = { command: 'str_replace', path: 'once', old_str: 'x', new_str: 'xy' };
    const first = await bench.call(editor, args, 30_000, 'once.0');
    assert.deepEqual(await bench.call(editor, args, 30_000, 'once.0'), first);
    assert.equal(await latin('once'), 'xy');
    const { box } = bench;
    const attach = { workflowRunId: 'run-1', attempt: 1 };
    const { info } = await box.client.attach(box.info.sandboxId, attach);
    await assert.rejects(bench.call(editor, args, 30_000, 'once.1'), failure('FenceRefused'));
    Object.assign(box.info, { fence: info.fence });
  });
});

test('a replacement changes the bytes it names and no other, and undo brings all back', async (t) => {
  const bench = await Bench.start(t);
  const { sandbox } = bench;
  const path = '/workspace/file';
  const part = fc.oneof(
    fc.string({ unit: fc.constantFrom('a', 'b', ' ', '\t', '\n', '\r\n', 'é', '€', '😀', '\\', '$&') }),
    fc.string({ unit: 'binary' }).filter((text) => !text.includes('\0')),
  );
  const NEEDLE = '<<needle>>';
  await fc.assert(
    fc.asyncProperty(
      part,
      part,
      part,
      part,
      fc.boolean(),
      async (before, after, tail, replacement, isLatin) => {
        const encode = (text: string) => Buffer.from(text, isLatin ? 'latin1' : 'utf8');
        const narrow = (text: string) => (isLatin ? text.replace(/[^\0-\xff]/g, '?') : text);
        // Line feeds only, or the replacement's would rightly become the file's.
        const [head, old, rest, fresh] = [before, NEEDLE + tail, after, replacement].map((text) =>
          narrow(text).replaceAll('\r', ''),
        ) as [string, string, string, string];
        const original = Buffer.concat([
          encode(head + old + rest),
          isLatin ? Buffer.from([0xff]) : Buffer.from(''),
        ]);
        await sandbox.writeFile(path, original, 0o640);
        const edit = (command: string, args = {}) => bench.call(editor, { command, path, ...args });
        const outcome = await edit('str_replace', { old_str: old, new_str: fresh });
        assert.equal(outcome.exitCode, old === fresh ? 1 : 0, outcome.text);
        const expected = Buffer.concat([
          encode(head + fresh + rest),
          isLatin ? Buffer.from([0xff]) : Buffer.from(''),
        ]);
        assert.deepEqual(await sandbox.readFile(path), expected);
        if (outcome.exitCode === 0) assert.equal((await edit('undo')).text, 'Undone.');
        assert.deepEqual(await sandbox.readFile(path), original);
      },
    ),
    { numRuns: 30 },
  );
});
