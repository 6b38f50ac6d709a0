import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { buildImage } from '../../workers/sandbox-host/images/build.ts';
import { localReferences } from '../../workers/sandbox-host/images/source.ts';
import { Box, failure, startHost, temporaryFolder } from '../sandbox/support.ts';
import { APPTAINER, WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { writeOciArchive } from './oci.ts';
import { buildOptions, helpersOf, makeRoot, processesWith } from './support.ts';

test('images', { skip: WITHOUT_APPTAINER }, async (t) => {
  const folder = temporaryFolder(t);
  const root = path.join(folder, 'root');
  const cacheDir = path.join(folder, 'images');
  makeRoot(root);
  const options = buildOptions(cacheDir);
  const { client } = await startHost(t, 'apptainer');

  await t.test(
    'a folder is built once, however many ask, and the image has what the folder has',
    async () => {
      const asked = [1, 2, 3, 4].map(() => buildImage(root, options));
      // Another process that asks at the same time, as a person does.
      const env = { ...process.env, ROLLOUTS_SANDBOX_APPTAINER: APPTAINER };
      const argv = ['bin/rollouts.mjs', 'image', 'build', root, '--json', '--state-dir', folder];
      const person = promisify(execFile)(process.execPath, argv, { cwd: PROJECT_ROOT, env });
      const images = [...(await Promise.all(asked)), JSON.parse((await person).stdout)];
      assert.equal(images.filter(({ built }) => built).length, 1);
      assert.deepEqual(new Set(images.map((image) => image.path)), new Set([images[0].path]));
      assert.deepEqual(
        readdirSync(cacheDir).sort(),
        [path.basename(images[0].path), `${path.basename(images[0].path)}.lock`].sort(),
      );

      const limits = { memoryBytes: 64 * 1024 ** 2, processes: 40 };
      const box = await Box.create(client, { image: images[0].path, limits });
      assert.equal((await box.exec(['cat', '/etc/release-of-the-image'])).stdout.text, 'of the image\n');
      assert.equal((await box.exec(['ls', '/usr/local'])).exitCode, 2);
      assert.equal((await box.exec(['python3', '-c', ''])).exitCode, 127);
      assert.equal(
        (await box.bash('echo x > /usr/bin/x && cat /usr/bin/x; pwd')).output.text,
        'x\n/workspace\n',
      );
      await client.writeFile(box.info.sandboxId, { fence: box.info.fence, path: 'a', content: 'eA==' });
      const removed = await box.bash(
        'rm /usr/bin/touch /etc/release-of-the-image && mkdir -p /usr/new/x && rm -r /usr/new && ls /usr /etc',
      );
      assert.deepEqual([removed.exitCode, /release|new/.test(removed.output.text)], [0, false]);
      const status = await box.exec(['grep', 'CapEff', '/proc/self/status']);
      assert.match(status.stdout.text, /\t0+\n$/);
      assert.equal(helpersOf(images[0].path).length, 1);
      const filled = await box.exec(['dd', 'if=/dev/zero', 'of=/tmp/big', 'bs=1M']);
      assert.equal(filled.limit, 'disk');
      await box.exec(['dd', 'if=/dev/null', 'of=/tmp/big']);
      // All three together are too much, any two are not: 64 MiB of 30, 7 and 30.
      const three = 'head -c 30M /dev/zero >/tmp/a; head -c 7M /dev/zero >/dev/shm/b; dd if=/dev/zero bs=30M';
      const together = await box.exec(['bash', '-c', `${three} count=1 | sleep 1`]);
      assert.equal(together.limit, 'memory');
      await box.exec(['bash', '-c', ': > /tmp/a; : > /dev/shm/b']);
      const bomb = await box.bash('bomb() { bomb | bomb & }; bomb; sleep 60; echo over', 30_000, 1000);
      assert.equal(bomb.limit, 'processes');
      await box.release();
      assert.deepEqual(helpersOf(images[0].path), []);
    },
  );

  await t.test('a definition is built anew when what it names has changed', async () => {
    const definition = path.join(folder, 'of-files.def');
    writeFileSync(path.join(folder, 'data.txt'), 'first');
    const text = `
      # an image
      Bootstrap: localimage
      From: root
      %files
        data.txt /data.txt
      %environment
        export FROM_IMAGE="two words" PATH=/opt/bin:$PATH`;
    writeFileSync(definition, text.replaceAll(/^ {6}/gm, ''));
    const first = await buildImage(definition, options);
    assert.deepEqual([first.kind, first.built], ['definition', true]);
    assert.deepEqual(await buildImage(definition, options), { ...first, built: false });
    appendFileSync(path.join(folder, 'data.txt'), ' and second');
    const second = await buildImage(definition, { ...options, out: path.join(folder, 'out', 'second.sif') });
    assert.notEqual(second.digest, first.digest);
    assert.equal(second.path, path.join(folder, 'out', 'second.sif'));

    const box = await Box.create(client, { image: second.path, environment: { GREETING: 'hello' } });
    const seen = await box.exec(['bash', '-c', 'cat /data.txt; echo "|$FROM_IMAGE|$GREETING|$PAGER|$PATH"']);
    assert.match(seen.stdout.text, /^first and second\|two words\|hello\|cat\|\/opt\/bin:/);
    assert.doesNotMatch((await box.exec(['env'])).stdout.text, /APPTAINER|SINGULARITY/);
    await box.release();
  });

  await t.test('an OCI archive is built, with the environment that it sets', async () => {
    const archive = path.join(folder, 'image.tar');
    // Layers that would reach out of the image: by a link of the layer before, by names, as whiteouts.
    const [outside, layer] = [path.join(folder, 'outside'), path.join(folder, 'layer')];
    for (const each of [outside, layer]) mkdirSync(each);
    writeFileSync(path.join(outside, 'victim'), 'of the host');
    symlinkSync(outside, path.join(layer, 'out'));
    const up = '../'.repeat(20);
    const reaching = [
      'out/linked',
      'out/.wh.victim',
      `${outside}/absolute`,
      `${up}${outside}/above`,
      `${up}${outside}/.wh.victim`,
    ];
    reaching.forEach((_, index) => {
      writeFileSync(path.join(layer, `file${index}`), 'of the image');
    });
    const renames = reaching.flatMap((name, index) => ['--transform', `s|^file${index}$|${name}|`]);
    execFileSync('tar', ['-cf', `${layer}1.tar`, '-C', layer, 'out']);
    execFileSync('tar', [
      '-cPf',
      `${layer}2.tar`,
      ...renames,
      '-C',
      layer,
      ...reaching.map((_, i) => `file${i}`),
    ]);
    const environment = ['PATH=/usr/bin:/of/the/image', 'LD_LIBRARY_PATH=/own'];
    writeOciArchive(root, archive, environment, [`${layer}1.tar`, `${layer}2.tar`]);
    const image = await buildImage(archive, options);
    assert.equal(image.kind, 'oci-archive');
    assert.deepEqual(readdirSync(outside), ['victim']);
    const box = await Box.create(client, { image: image.path });
    const seen = await box.exec(['bash', '-c', 'echo "$PATH|$LD_LIBRARY_PATH"']);
    assert.equal(seen.stdout.text, '/usr/bin:/of/the/image|/own\n');
    await box.release();

    // Apptainer would build it, and keep the part for every other image that has one of this digest.
    const layout = `${archive}.layout`;
    const repack = () =>
      execFileSync('tar', ['-cf', archive, '-C', layout, 'oci-layout', 'index.json', 'blobs']);
    const blobs = readdirSync(path.join(layout, 'blobs/sha256')).map((name) =>
      path.join('blobs/sha256', name),
    );
    const [config] = blobs.filter((name) =>
      readFileSync(path.join(layout, name), 'latin1').includes('rootfs'),
    );
    appendFileSync(path.join(layout, config as string), ' ');
    const definition = path.join(folder, 'of-archive.def');
    writeFileSync(definition, 'Bootstrap: oci-archive\nFrom: image.tar\n');
    repack();
    const changed = failure('InvalidRequest', new RegExp(`${config} has the SHA-256 [0-9a-f]{64}`));
    for (const source of [layout, archive, definition])
      await assert.rejects(buildImage(source, options), changed);
    rmSync(path.join(layout, config as string));
    symlinkSync('/etc/hostname', path.join(layout, config as string));
    repack();
    const link = failure('InvalidRequest', new RegExp(`${config}.* is no ordinary file`));
    for (const source of [layout, archive]) await assert.rejects(buildImage(source, options), link);
  });

  await t.test('what an image unpacks to is bounded while it is unpacked, and removed', async (t) => {
    const lines: string[] = [];
    const bounded = { ...options, maxBytes: 64 * 1024 ** 2, onLine: (line: string) => lines.push(line) };
    const layer = (name: string, make: (folder: string) => void): string => {
      const layer = path.join(folder, name);
      mkdirSync(layer);
      make(layer);
      // With privileges: not all of it may be read, or removed, by who owns it.
      const asRoot = ['--user', '--map-root-user', '--'];
      execFileSync('unshare', [...asRoot, 'tar', '--format=posix', '-cSf', `${layer}.tar`, '-C', layer, '.']);
      execFileSync('unshare', [...asRoot, 'rm', '-r', layer]);
      return `${layer}.tar`;
    };
    // In the archive it has a few kilobytes: its content is a hole.
    const one = layer('one', (into) => execFileSync('truncate', ['-s', '40G', path.join(into, 'file')]));
    const many = layer('many', (into) => {
      mkdirSync(path.join(into, 'closed'));
      for (let at = 0; at < 64; at++)
        execFileSync('truncate', ['-s', '63M', path.join(into, `closed/${at}`)]);
      chmodSync(path.join(into, 'closed'), 0);
    });
    const files = layer('files', (into) => {
      for (let at = 0; at < 8000; at++) writeFileSync(path.join(into, `${at}`), '');
    });
    for (const [bomb, bound, why] of [
      [one, bounded, /more than 67108864 bytes .*sandbox\.imageBytes/],
      [many, bounded, /more than 67108864 bytes .*sandbox\.imageBytes/],
      [files, bounded, /more than 4096 files .*sandbox\.imageBytes/],
      [files, { ...options, minFreeBytes: 2 ** 50 }, /less than 1125899906842624 bytes .*minFreeBytes/],
    ] as const) {
      await t.test(`${path.basename(bomb)}: ${why}`, async () => {
        const archive = `${bomb}.oci`;
        writeOciArchive(root, archive, [], [bomb]);
        let most = 0;
        const watch = setInterval(() => {
          const { stdout } = spawnSync('du', ['-s', '--block-size=1', cacheDir], { encoding: 'utf8' });
          most = Math.max(most, Number.parseInt(stdout, 10) || 0);
        }, 50);
        const named = new RegExp(`${archive} .*${why.source}.*removed$`, 's');
        await assert
          .rejects(buildImage(archive, bound), failure('ImageTooLarge', named))
          .finally(() => clearInterval(watch));
        assert.ok(most < 3 * 1024 ** 3, `${most} bytes were on the disk`);
        assert.deepEqual(processesWith(cacheDir), []);
        assert.deepEqual(
          readdirSync(cacheDir).filter((name) => name.endsWith('.building')),
          [],
        );
      });
    }
    const fits = await buildImage(root, bounded);
    assert.equal(fits.kind, 'folder');
    assert.doesNotMatch(lines.join('\n'), /rollout-image/);
  });

  await t.test('a folder is an image as it is', async () => {
    const box = await Box.create(client, { image: root });
    assert.equal((await box.bash('cat /etc/release-of-the-image')).output.text, 'of the image\n');
    // Whoever owns the folder: here that is somebody else when the host runs as root.
    assert.equal((await box.bash('cd; echo x > x; cat x; pwd')).output.text, 'x\n/root\n');
    await box.release();
  });

  await t.test('nothing of an image runs before the filter is set, or with privileges', async () => {
    const hostile = path.join(folder, 'hostile');
    cpSync(root, hostile, { recursive: true, verbatimSymlinks: true });
    // What stands for the image's programs notes what it is allowed to do.
    const note = 'grep -E "^(Seccomp|CapEff|NoNewPrivs):" /proc/self/status >>/tmp/notes';
    renameSync(path.join(hostile, 'bin/bash'), path.join(hostile, 'bin/real-bash'));
    for (const [name, then] of [
      ['bash', 'exec -a "$0" /bin/real-bash "$@"'],
      ['setpriv', 'exit 1'],
      ['mount', 'exit 1'],
      ['mkdir', 'exit 1'],
    ] as const) {
      const program = path.join(hostile, 'bin', name);
      writeFileSync(program, `#!/bin/real-bash\n${note}\n${then}\n`, { mode: 0o755 });
    }
    const settings = path.join(hostile, '.singularity.d/env');
    mkdirSync(settings, { recursive: true });
    writeFileSync(
      path.join(settings, '90-environment.sh'),
      `${note}; unshare -Ur true 2>/dev/null && echo unshared >>/tmp/notes; export OF_IMAGE="it's set"\n`,
    );
    const box = await Box.create(client, { image: hostile });
    const { stdout } = await box.exec(['bash', '-c', 'echo "$OF_IMAGE"; cat /tmp/notes']);
    assert.match(stdout.text, /^it's set\n(CapEff:\t0+\nNoNewPrivs:\t1\nSeccomp:\t2\n){3,}$/);
    const first = await box.exec(['grep', '^Seccomp:', '/proc/1/status']);
    assert.equal(first.stdout.text, 'Seccomp:\t2\n');
    await box.release();

    writeFileSync(path.join(settings, '90-environment.sh'), 'exit 0');
    await assert.rejects(Box.create(client, { image: hostile }), failure('SandboxFailed', /end the shell/));
    assert.equal((await client.stats()).sandboxes, 0);
  });

  await t.test("an image may be anybody's; one that may not be read is refused with what to do", async () => {
    const { path: image } = await buildImage(root, options);
    const [owner, mine] = process.geteuid?.() === 0 ? [1001, 0] : [process.geteuid?.() ?? 0, undefined];
    chownSync(image, owner, owner);
    const box = await Box.create(client, { image });
    assert.equal((await box.bash('cat /etc/release-of-the-image')).output.text, 'of the image\n');
    await box.release();
    // An ordinary user may read what is his own, as root of a namespace, whatever its mode.
    for (const source of mine === undefined ? [] : [image, root]) {
      chmodSync(source, 0);
      const advice = new RegExp(`${source} is not readable.*chmod -R a\\+rX ${source}$`);
      await assert.rejects(Box.create(client, { image: source }), failure('SandboxFailed', advice));
      chmodSync(source, 0o755);
    }
    if (mine !== undefined) chownSync(image, mine, mine);
  });

  await t.test('what cannot be built or used says why', async () => {
    const before = readdirSync(cacheDir).filter((name) => !name.endsWith('.lock'));
    await assert.rejects(buildImage(path.join(folder, 'none'), options), failure('InvalidRequest', /ENOENT/));
    await assert.rejects(
      buildImage(path.join(folder, 'data.txt'), options),
      failure('InvalidRequest', /no definition .* no OCI or Docker archive and no folder/),
    );
    const definition = path.join(folder, 'broken.def');
    writeFileSync(definition, 'Bootstrap: localimage\nFrom: nowhere\n');
    // Of a build that was killed, and of one that goes on.
    const [dead, live] = ['dead', 'live'].map((name) => path.join(cacheDir, `${name}.sif`)) as [
      string,
      string,
    ];
    for (const each of [dead, live]) mkdirSync(`${each}.building/rootfs`, { recursive: true });
    const holder = spawn('flock', [`${live}.lock`, 'sh', '-c', 'echo held; cat']);
    await once(holder.stdout, 'data');
    await assert.rejects(buildImage(definition, options), failure('ImageBuildFailed', /FATAL.*nowhere/s));
    assert.deepEqual([existsSync(`${dead}.building`), existsSync(`${live}.building`)], [false, true]);
    holder.stdin.end();
    await once(holder, 'exit');
    rmSync(`${live}.building`, { recursive: true });
    assert.deepEqual(
      readdirSync(cacheDir).filter((name) => !name.endsWith('.lock')),
      before,
    );
    const image = path.join(folder, 'none.sif');
    await assert.rejects(Box.create(client, { image }), failure('SandboxFailed', /none\.sif does not exist/));
    mkdirSync(path.join(folder, 'empty'));
    await assert.rejects(
      Box.create(client, { image: path.join(folder, 'empty') }),
      failure('SandboxFailed', /\/dev doesn't exist in container/),
    );
    await assert.rejects(
      Box.create(client, { image: path.join(folder, 'data.txt') }),
      failure('SandboxFailed', /data\.txt|format/),
    );
    assert.equal((await client.stats()).sandboxes, 0);
  });
});

test('a backend without images refuses tasks that want one', async (t) => {
  for (const backend of ['bubblewrap', 'process'] as const) {
    const { client } = await startHost(t, backend);
    await assert.rejects(
      Box.create(client, { image: '/images/any.sif' }),
      failure('SandboxUnavailable', /image \/images\/any\.sif.*set sandbox\.backend to apptainer/),
    );
  }
});

test('what a definition names on this machine', () => {
  const definition = `Bootstrap: docker
From: debian:12
%files
  # not this
  a.txt /a
  sub/*.py /code
%post
  from: here
Bootstrap: oci-archive
From: base.tar:latest
%files from other
  inner /x`;
  assert.deepEqual(localReferences(definition), ['a.txt', 'sub/', 'base.tar']);
});
