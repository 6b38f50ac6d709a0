import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { run } from '../../scripts/setup/lib/command.mjs';
import { TEMPORAL_CLI } from '../../scripts/setup/versions.mjs';

/** A folder that is removed when the test ends. */
export function temporaryFolder(t) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'rollouts-setup-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A shell script that stands in for a program. Returns its path. */
export function fakeProgram(folder, name, body) {
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, name);
  writeFileSync(file, `#!/bin/sh\n${body}\n`);
  chmodSync(file, 0o755);
  return file;
}

/** What a Temporal CLI of some version answers to --version. */
export function temporalScript(version) {
  return `echo "temporal version ${version} (Server 1.29.1, UI 2.42.1)"`;
}

/** Collects what a step reports instead of showing it. */
export function recordingReport() {
  const lines = [];
  const record = (kind) => (text) => lines.push(`${kind}: ${text}`);
  return { lines, say: record('say'), warn: record('warn'), progress: record('progress') };
}

/**
 * A server with the layout of the CLI's releases. `answers` replaces the answer to one file name by a
 * function of the response.
 */
export async function releaseServer(t, answers = {}) {
  const folder = temporaryFolder(t);
  fakeProgram(folder, 'temporal', temporalScript(TEMPORAL_CLI));
  const name = `temporal_cli_${TEMPORAL_CLI}_linux_amd64.tar.gz`;
  await run('tar', ['-czf', path.join(folder, name), '-C', folder, 'temporal']);
  const archive = readFileSync(path.join(folder, name));
  const sum = createHash('sha256').update(archive).digest('hex');
  const files = { [name]: archive, 'checksums.txt': `${'0'.repeat(64)}  other.tar.gz\n${sum}  ${name}\n` };
  const requests = [];

  const server = http.createServer((request, response) => {
    const prefix = `/v${TEMPORAL_CLI}/`;
    const file = request.url.startsWith(prefix) ? request.url.slice(prefix.length) : '';
    requests.push(file);
    if (file in answers) answers[file](response, archive);
    else if (file in files) response.end(files[file]);
    else response.writeHead(404).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { address: `http://127.0.0.1:${server.address().port}`, name, requests };
}
