import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { temporalCli } from '../../scripts/setup/steps/temporal-cli.mjs';
import { TEMPORAL_CLI } from '../../scripts/setup/versions.mjs';
import { recordingReport, releaseServer, temporaryFolder } from './support.mjs';

function machine(t, address) {
  const cache = temporaryFolder(t);
  const env = { PATH: '/nowhere', ROLLOUTS_TEMPORAL_DOWNLOAD: address };
  const downloadLimits = { answerMs: 300, stallMs: 300 };
  return { env, cache, platform: 'linux', arch: 'x64', downloadLimits };
}

/** The download's error from the report of a machine that has no other source. */
async function downloadError(t, answers, change = {}) {
  const server = await releaseServer(t, answers);
  const context = { ...machine(t, server.address), ...change };
  let error = '';
  await assert.rejects(temporalCli.run(context, recordingReport()), (failure) => {
    error = failure.attempts.find(({ what }) => what === 'official release').error;
    return true;
  });
  const folder = path.join(context.cache, 'temporal-cli', TEMPORAL_CLI);
  assert.deepEqual(readdirSync(folder), [], 'nothing of a failed download stays in the cache');
  return error;
}

const ARCHIVE = `temporal_cli_${TEMPORAL_CLI}_linux_amd64.tar.gz`;

test('a good release is verified, put into the cache and not downloaded twice', async (t) => {
  const server = await releaseServer(t);
  const context = machine(t, server.address);
  const first = await temporalCli.run(context, recordingReport());
  assert.equal(first.value, path.join(context.cache, 'temporal-cli', TEMPORAL_CLI, 'temporal'));
  assert.match(first.summary, /^1\.5\.1, official release/);
  assert.deepEqual(server.requests, ['checksums.txt', ARCHIVE]);

  const second = await temporalCli.run(context, recordingReport());
  assert.equal(second.value, first.value);
  assert.equal(server.requests.length, 2);
  assert.deepEqual(readdirSync(path.dirname(first.value)), ['temporal']);
});

test('two set-ups at once download once and both have it', async (t) => {
  const server = await releaseServer(t);
  const context = machine(t, server.address);
  const both = await Promise.all([1, 2].map(() => temporalCli.run(context, recordingReport())));
  assert.equal(both[0].value, both[1].value);
  assert.equal(server.requests.length, 2);
});

test('an archive with another checksum is refused', async (t) => {
  const error = await downloadError(t, { [ARCHIVE]: (response) => response.end('something else') });
  assert.match(error, /refused, its SHA-256 is [0-9a-f]{64} and not [0-9a-f]{64}$/);
});

test('an archive that the list of checksums does not name is refused', async (t) => {
  const error = await downloadError(t, { 'checksums.txt': (response) => response.end('') });
  assert.match(error, /checksums\.txt has no SHA-256 for temporal_cli_1\.5\.1_linux_amd64\.tar\.gz/);
});

test('an archive that is cut short is refused', async (t) => {
  const error = await downloadError(t, {
    [ARCHIVE](response, archive) {
      response.writeHead(200, { 'content-length': archive.length });
      response.write(archive.subarray(0, 100), () => response.destroy());
    },
  });
  assert.match(error, /tar\.gz: terminated/);
});

test('a release that does not exist is named with its address', async (t) => {
  const error = await downloadError(t, { [ARCHIVE]: (response) => response.writeHead(404).end() });
  assert.match(error, new RegExp(`/v1\\.5\\.1/${ARCHIVE}: answered 404 Not Found`));
});

test('a server that never answers is given up', async (t) => {
  assert.match(await downloadError(t, { 'checksums.txt': () => {} }), /checksums\.txt: no data for 0\.3 s/);
});

test('a server that stops in the middle is given up', async (t) => {
  const error = await downloadError(t, {
    [ARCHIVE](response, archive) {
      response.writeHead(200, { 'content-length': archive.length });
      response.write(archive.subarray(0, 100));
    },
  });
  assert.match(error, /tar\.gz: no data for 0\.3 s/);
});

test('a platform without a release is named', async (t) => {
  assert.equal(await downloadError(t, {}, { arch: 'riscv64' }), 'there is no release for linux on riscv64');
});
