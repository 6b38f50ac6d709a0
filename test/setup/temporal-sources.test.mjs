import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { temporalCli } from '../../scripts/setup/steps/temporal-cli.mjs';
import { TEMPORAL_CLI } from '../../scripts/setup/versions.mjs';
import { fakeProgram, recordingReport, temporalScript, temporaryFolder } from './support.mjs';

/** A machine with nothing on PATH, an empty cache and no network. */
function emptyMachine(t) {
  const folder = temporaryFolder(t);
  const bin = path.join(folder, 'bin');
  const cache = path.join(folder, 'cache');
  const env = { PATH: bin, ROLLOUTS_TEMPORAL_DOWNLOAD: 'http://127.0.0.1:1' };
  return { folder, bin, cache, context: { env, cache, platform: 'linux', arch: 'x64' } };
}

/** Built by `go install`, the CLI does not know its version; Go's record of the module is in the binary. */
function goBuilt(version) {
  return `${temporalScript('0.0.0-DEV')}\n# mod\tgithub.com/temporalio/cli\t${version}\th1:x`;
}

test('TEMPORAL_CLI comes before PATH, and PATH before the cache folder', async (t) => {
  const { folder, bin, cache, context } = emptyMachine(t);
  const cached = fakeProgram(
    path.join(cache, 'temporal-cli', TEMPORAL_CLI),
    'temporal',
    temporalScript(TEMPORAL_CLI),
  );
  assert.equal((await temporalCli.run(context, recordingReport())).value, cached);

  const onPath = fakeProgram(bin, 'temporal', temporalScript('1.6.0'));
  assert.equal((await temporalCli.run(context, recordingReport())).value, onPath);

  const named = fakeProgram(folder, 'my-temporal', temporalScript('1.7.2'));
  context.env.TEMPORAL_CLI = named;
  const { value, summary } = await temporalCli.run(context, recordingReport());
  assert.equal(value, named);
  assert.match(summary, /^1\.7\.2, TEMPORAL_CLI=/);
});

test('a CLI that is too old is passed over, and the person is told', async (t) => {
  const { folder, bin, context } = emptyMachine(t);
  const second = path.join(folder, 'second');
  context.env.PATH = `${bin}:${second}`;
  context.env.TEMPORAL_CLI = fakeProgram(folder, 'old-temporal', temporalScript('0.13.2'));
  fakeProgram(bin, 'temporal', temporalScript('1.4.9'));
  const good = fakeProgram(second, 'temporal', temporalScript('1.5.0'));

  const report = recordingReport();
  assert.equal((await temporalCli.run(context, report)).value, good);
  assert.deepEqual(report.lines, [
    `warn: TEMPORAL_CLI=${context.env.TEMPORAL_CLI}: version 0.13.2 is too old; at least 1.5.0 is needed; going on`,
    'warn: on PATH: version 1.4.9 is too old; at least 1.5.0 is needed; going on',
  ]);
});

test('a build by go install is known by the module version inside it', async (t) => {
  const { bin, context } = emptyMachine(t);
  fakeProgram(bin, 'temporal', goBuilt('v1.5.1'));
  assert.match((await temporalCli.run(context, recordingReport())).summary, /^1\.5\.1, on PATH/);

  fakeProgram(bin, 'temporal', goBuilt('v1.3.0'));
  await assert.rejects(temporalCli.run(context, recordingReport()), (failure) => {
    assert.match(failure.explain(), /version 1\.3\.0 is too old/);
    return true;
  });
});

test('when nothing serves, the report names every source, its error and what to do', async (t) => {
  const { folder, bin, cache, context } = emptyMachine(t);
  context.env.TEMPORAL_CLI = path.join(folder, 'absent');
  fakeProgram(bin, 'temporal', 'echo broken >&2; exit 3');
  fakeProgram(bin, 'go', 'echo "go: module needs go >= 1.25" >&2; exit 1');

  await assert.rejects(temporalCli.run(context, recordingReport()), (failure) => {
    const text = failure.explain();
    assert.deepEqual(
      failure.attempts.map(({ what }) => what),
      [
        `TEMPORAL_CLI=${context.env.TEMPORAL_CLI}`,
        'on PATH',
        `cache folder ${cache}`,
        'official release',
        'go install',
      ],
    );
    assert.match(text, /absent is no program that can be run/);
    assert.match(text, /--version ended with code 3\n\s+broken/);
    assert.match(text, /127\.0\.0\.1:1\/v1\.5\.1\/checksums\.txt: fetch failed/);
    assert.match(text, /go: module needs go >= 1\.25/);
    assert.match(text, /What you can do:\n {2}- install it/);
    return true;
  });
});

test('the build asks for the pinned module version and leaves only the program in the cache', async (t) => {
  const { bin, folder, cache, context } = emptyMachine(t);
  const seen = path.join(folder, 'go-arguments');
  const script = `printf '%s\\n' "$@" > ${seen}
    printf '#!/bin/sh\\n%s\\n' '${temporalScript(TEMPORAL_CLI)}' > "$GOBIN/temporal"; /bin/chmod +x "$GOBIN/temporal"`;
  fakeProgram(bin, 'go', script);

  const { value, summary } = await temporalCli.run(context, recordingReport());
  assert.equal(value, path.join(cache, 'temporal-cli', TEMPORAL_CLI, 'temporal'));
  assert.match(summary, /^1\.5\.1, go install/);
  assert.match(
    readFileSync(seen, 'utf8'),
    /^install\n[\s\S]*github\.com\/temporalio\/cli\/cmd\/temporal@v1\.5\.1\n$/,
  );
  assert.deepEqual(readdirSync(path.dirname(value)), ['temporal']);
});
