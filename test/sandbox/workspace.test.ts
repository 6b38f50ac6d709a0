import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import type { DiffWorkspace } from '../../contracts/workspace.ts';
import { BACKENDS, Box, failure, startHost, temporaryFolder, until } from './support.ts';

/** Runs one script in the workspace to its end. */
async function inside(box: Box, script: string): Promise<string> {
  const result = await box.exec(['bash', '-c', script]);
  assert.equal(result.exitCode, 0, result.stderr.text);
  return result.stdout.text;
}

async function diffOf(box: Box, options: Omit<DiffWorkspace, 'fence'> = {}) {
  const { sandboxId, fence } = box.info;
  const diff = await box.client.diff(sandboxId, { fence, ...options });
  assert.equal(diff.status, 'ok');
  if (diff.status !== 'ok') throw new Error('not reached');
  const patch = Buffer.from(diff.patch, 'base64');
  assert.deepEqual([diff.bytes, diff.sha256], [patch.length, digest(patch)]);
  return { ...diff, patch };
}

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** A listing of everything in a folder, but .git folders: kind, mode, links, content. */
const LIST = `find . -mindepth 1 -name .git -prune -o -printf '%y %m %P %l\\n' | sort
  find . -name .git -prune -o -type f -print0 | sort -z | xargs -0r sha256sum`;

for (const backend of BACKENDS) {
  test(`${backend}: the workspace as a whole`, async (t) => {
    const { client, stateDir } = await startHost(t, backend, 16);
    const store = temporaryFolder(t);

    await t.test(
      'a diff holds every kind of change, and applied to the start makes the workspace',
      async () => {
        const [box, again] = [await Box.create(client), await Box.create(client)];
        const start = `mkdir -p src deep/er "with space"; echo one > src/a; echo same > src/same; echo gone > deep/er/gone
        printf 'a\\r\\nb\\r\\n' > crlf; printf '\\0\\1\\2binary' > blob; ln -s src/a link; echo tool > tool
        echo kind > kind; echo '*.log' > .gitignore; echo old > known.log; echo x > "with space/ü"`;
        await inside(box, start);
        await inside(again, start);
        await assert.rejects(diffOf(box), failure('InvalidRequest', /no start was marked/));
        const { sandboxId, fence } = box.info;
        const mark = await client.markStart(sandboxId, { fence });
        assert.match(mark.tree, /^[0-9a-f]{40}$/);
        assert.deepEqual([(await diffOf(box)).files, (await diffOf(box)).bytes], [0, 0]);
        await inside(
          box,
          `echo two >> src/a; rm -r deep; printf '\\0\\377new' > new.bin; printf '\\0\\1\\3binary' > blob
         printf 'a\\r\\nc\\r\\n' > crlf; ln -sfn src/same link; chmod +x tool; rm kind; mkdir kind; echo y > kind/file
         echo new > known.log; echo fresh > fresh.log; rm src/same; echo caf > 'with space/é "quoted"'`,
        );
        const diff = await diffOf(box);
        assert.deepEqual([diff.files, diff.omitted], [13, 0]);
        await again.exec(
          ['bash', '-c', 'cat > /tmp/patch; git apply --binary /tmp/patch'],
          diff.patch.toString(),
        );
        assert.equal(await inside(again, LIST), await inside(box, LIST));
        // The same again: taking it changes nothing.
        assert.deepEqual((await diffOf(box)).patch, diff.patch);
        await Promise.all([box.release(), again.release()]);
      },
    );

    await t.test('a diff of one folder begins there, without what is excluded', async () => {
      const box = await Box.create(client);
      const { sandboxId, fence } = box.info;
      await inside(box, 'mkdir -p "re*po/src" other; echo a > "re*po/src/a"; echo b > other/b');
      await client.markStart(sandboxId, { fence });
      await inside(
        box,
        'cd "re*po"; echo c >> src/a; mkdir -p src/__pycache__; echo > src/__pycache__/a.pyc; echo >> ../other/b',
      );
      const diff = await diffOf(box, { folder: 're*po', exclude: ['**/__pycache__/**'] });
      assert.equal(diff.files, 1);
      assert.match(diff.patch.toString(), /^diff --git a\/src\/a b\/src\/a\n/);
      assert.doesNotMatch(diff.patch.toString(), /pyc|other/);
      await assert.rejects(diffOf(box, { folder: '../x' }), failure('InvalidRequest', /folder/));
      await box.release();
    });

    await t.test('repositories inside hide nothing, and nothing of them is asked', async () => {
      const box = await Box.create(client);
      const { sandboxId, fence } = box.info;
      const git = 'git -c user.name=x -c user.email=x@x';
      await inside(
        box,
        `git init -q .; echo 1 > file; printf 'a\\r\\n' > dos; git add .; ${git} commit -qm start; mkdir sub; echo s > sub/s`,
      );
      await client.markStart(sandboxId, { fence });
      await inside(
        box,
        `ran() { echo "touch $PWD/ran; echo ran >> $PWD/ran"; }; printf '#!/bin/sh\\n%s\\ncat' "$(ran)" > hook
         chmod +x hook; mkdir -p .git/hooks; cp hook .git/hooks/post-index-change
         git config core.fsmonitor "$PWD/hook"; git config diff.evil.textconv "$PWD/hook"
         git config diff.evil.command "$PWD/hook"; git config filter.evil.clean "$PWD/hook"
         git config core.hooksPath "$PWD/.git/hooks"; git config core.pager "$PWD/hook"
         git config include.path "$PWD/more"
         echo '* diff=evil filter=evil text eol=crlf ident working-tree-encoding=UTF-16' > .gitattributes
         echo '!git warns -of[this' >> .gitattributes
         mkdir -p .git/info; cp .gitattributes .git/info/attributes
         (cd sub; git init -q; git add .; ${git} commit -qm hidden); echo changed > sub/s
         mkdir third; echo 'gitdir: ../sub/.git' > third/.git; echo t > third/t
         echo '$Id: 2 $' > file; printf 'b\\r\\n' >> dos; ln -s / .gitmodules
         cp .git/config "$HOME/.gitconfig"; rm -f ran`,
      );
      const diff = await diffOf(box, { exclude: ['.gitconfig'] });
      const names = [...diff.patch.toString().matchAll(/^diff --git a\/(\S+)/gm)].map((match) => match[1]);
      assert.deepEqual(names, ['.gitattributes', 'dos', 'file', 'hook', 'sub/s', 'third/t']);
      assert.match(diff.patch.toString(), /^ a\r\n\+b\r\n/m);
      assert.match(diff.patch.toString(), /^\+\$Id: 2 \$$/m);
      assert.equal((await box.exec(['test', '-e', 'ran'])).exitCode, 1);
      // .git becomes a link, a file, and goes.
      for (const change of [
        'mv .git moved; ln -s moved .git',
        'rm .git; echo "gitdir: moved" > .git',
        'rm .git',
      ]) {
        await inside(box, change);
        const { patch } = await diffOf(box, { exclude: ['moved/**', '.gitconfig'] });
        assert.deepEqual([change, patch], [change, diff.patch]);
      }
      await box.release();
    });

    await t.test('a snapshot fills a fresh sandbox with the same, its start included', async () => {
      const box = await Box.create(client);
      const { sandboxId, fence } = box.info;
      await inside(box, 'mkdir -p a/b; echo one > a/b/file; echo keep > keep');
      await client.markStart(sandboxId, { fence });
      await inside(
        box,
        `git init -q; echo two >> a/b/file; chmod 751 a; ln -s nowhere dangling; ln keep hard; mkfifo pipe
         truncate -s 30M sparse; printf '\\0\\377' > "b
in"; mkdir empty; touch -d 2001-01-01 keep`,
      );
      const file = path.join(store, `${backend}.tar`);
      const snapshot = await client.snapshot(sandboxId, { fence, file });
      assert.equal(snapshot.status, 'ok');
      if (snapshot.status !== 'ok') return;
      const { sha256, bytes } = snapshot;
      assert.deepEqual([sha256, bytes], [digest(readFileSync(file)), statSync(file).size]);
      assert.ok(bytes < 10_000_000, 'holes are not stored');
      assert.deepEqual(
        readdirSync(store).filter((name) => name.includes('draft')),
        [],
      );
      const list = `${LIST}; stat -c '%Y %h' keep; ls -A .git`;
      const [before, patch] = [await inside(box, list), (await diffOf(box)).patch];
      await box.release();

      const fresh = await Box.create(client);
      const ask = { fence: fresh.info.fence, file, sha256 };
      const restored = await client.restore(fresh.info.sandboxId, ask);
      assert.equal(restored.bytes, bytes);
      assert.equal(await inside(fresh, list), before);
      assert.deepEqual((await diffOf(fresh)).patch, patch);
      await assert.rejects(client.restore(fresh.info.sandboxId, ask), failure('InvalidRequest', /not empty/));
      await fresh.release();

      const other = await Box.create(client);
      const damaged = path.join(store, 'damaged');
      const content = readFileSync(file);
      content[content.length >> 1] = (content[content.length >> 1] as number) ^ 1;
      writeFileSync(damaged, content);
      const wrong = { fence: other.info.fence, file: damaged, sha256 };
      await assert.rejects(client.restore(other.info.sandboxId, wrong), failure('StoreCorrupt'));
      assert.equal(await inside(other, 'ls -A'), '');
      await assert.rejects(
        client.restore(other.info.sandboxId, { ...wrong, file: path.join(store, 'none') }),
        failure('StoreFailed', /none/),
      );
      await other.release();
    });

    await t.test('what is too large is told, not failed, and leaves no file', async () => {
      const box = await Box.create(client);
      const { sandboxId, fence } = box.info;
      await client.markStart(sandboxId, { fence });
      await inside(box, 'head -c 3000000 /dev/urandom > noise');
      const diff = await client.diff(sandboxId, { fence, maxBytes: 1_000_000 });
      assert.deepEqual(diff, { status: 'tooLarge', why: 'the patch has more than 1000000 bytes' });
      const file = path.join(store, 'large.tar');
      const snapshot = await client.snapshot(sandboxId, { fence, file, maxBytes: 1_000_000 });
      assert.deepEqual(snapshot, { status: 'tooLarge', why: 'the archive has more than 1000000 bytes' });
      assert.deepEqual(
        readdirSync(store).filter((name) => name.startsWith('large')),
        [],
      );
      await inside(box, 'mkdir deep; mkfifo deep/.gitattributes; echo x > deep/x');
      const endless = await client.diff(sandboxId, { fence });
      assert.ok(endless.status === 'tooLarge' && /pipe.*\.gitattributes/.test(endless.why));
      const late = await client.diff(sandboxId, { fence, timeoutMs: 1 });
      assert.deepEqual(late, { status: 'tooLarge', why: 'it took more than 0.001 s' });
      await assert.rejects(
        client.snapshot(sandboxId, { fence, file: path.join(store, 'no/such/folder') }),
        failure('StoreFailed'),
      );
      await assert.rejects(client.diff(sandboxId, { fence: fence - 1 }), failure('FenceRefused'));
      await box.release();
    });

    await t.test('a release in the middle ends it, and nothing stays', async () => {
      const box = await Box.create(client);
      const { sandboxId, fence } = box.info;
      await inside(box, 'for i in {1..3000}; do echo $i > $i; done');
      const mark = assert.rejects(client.markStart(sandboxId, { fence }), failure('SandboxLost'));
      await until(() => readdirSync(path.join(stateDir, 'host', 'sandboxes')).length === 2, 'the one beside');
      await box.release();
      await mark;
      assert.deepEqual(readdirSync(path.join(stateDir, 'host', 'sandboxes')), []);
    });

    if (backend === 'process') return; // it keeps nothing apart

    await t.test('nothing of the host gets in by links, however they change', async () => {
      const secret = path.join(temporaryFolder(t), 'folder');
      mkdirSync(secret);
      writeFileSync(path.join(secret, 'secret'), 'of the host');
      const box = await Box.create(client);
      const { sandboxId, fence } = box.info;
      await inside(box, 'mkdir folder; echo mine > folder/secret; echo mine > file');
      await client.markStart(sandboxId, { fence });
      await inside(box, 'echo more >> folder/secret; echo more >> file; mv folder real');
      const swap = `while :; do ln -sfnT real folder; ln -sfn real/secret file; ln -sfnT ${secret} folder
        ln -sfn ${secret}/secret file; rm -f file; echo own > file; done`;
      await box.bash(`(${swap}) >/dev/null 2>&1 &`);
      for (let round = 0; round < 5; round++) {
        const file = path.join(store, 'race.tar');
        const taken = await Promise.allSettled([
          client.diff(sandboxId, { fence }),
          client.snapshot(sandboxId, { fence, file }),
        ]);
        for (const each of taken) {
          if (each.status === 'rejected') assert.ok(failure('SandboxFailed')(each.reason), each.reason);
          else if ('patch' in each.value) {
            assert.doesNotMatch(Buffer.from(each.value.patch, 'base64').toString(), /of the host/);
          } else assert.equal(readFileSync(file).includes('of the host'), false);
        }
      }
      await client.kill(sandboxId, fence);
      assert.match((await diffOf(box)).patch.toString(), /real\/secret/);
      await box.release();
    });

    await t.test('files that nobody may read, and paths too long for git, are no way out', async (t) => {
      const box = await Box.create(client);
      t.after(() => box.release()); // what is this deep, only the host removes
      const { sandboxId, fence } = box.info;
      await client.markStart(sandboxId, { fence });
      const long = 'd'.repeat(250);
      await inside(
        box,
        `mkdir shut; echo inside > shut/file; chmod 000 shut/file shut
         for i in {1..20}; do mkdir ${long}; cd ${long}; done; echo deep > file`,
      );
      const diff = await diffOf(box);
      assert.deepEqual([diff.files, diff.omitted], [1, 1]);
      assert.match(diff.patch.toString(), /^\+inside$/m);
      const file = path.join(store, 'shut.tar');
      const snapshot = await client.snapshot(sandboxId, { fence, file });
      assert.equal(snapshot.status, 'ok');
      if (snapshot.status !== 'ok') return;
      assert.equal(snapshot.omitted, 6);
      await box.release();
      const fresh = await Box.create(client);
      const { sha256 } = snapshot;
      await client.restore(fresh.info.sandboxId, { fence: fresh.info.fence, file, sha256 });
      assert.equal(await inside(fresh, 'stat -c %a shut; chmod 700 shut; stat -c %a shut/file'), '0\n0\n');
      await fresh.release();
    });

    await t.test('the agent sees nothing of the start', async () => {
      const box = await Box.create(client);
      const { sandboxId, fence } = box.info;
      await client.markStart(sandboxId, { fence });
      const found = await box.exec([
        'bash',
        '-c',
        'ls -d /mnt/* /start /workspace/../start; ls -A /workspace',
      ]);
      assert.equal(found.stdout.text, '');
      await box.release();
    });
  });
}
