import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { SandboxSpec } from '../../contracts/sandbox.ts';
import { ProcessBackend } from '../../workers/sandbox-host/backends/process.ts';
import { Bash } from '../../workers/sandbox-host/shells/bash.ts';

test('a shell knows its own processes though all were counted just before it began', async (t) => {
  const root = await mkdtemp(path.join(tmpdir(), 'own-'));
  t.after(() => rm(root, { recursive: true }));
  const [workspaceDir, controlDir] = [path.join(root, 'w'), path.join(root, 'c')];
  for (const folder of [workspaceDir, path.join(controlDir, 's')]) await mkdir(folder, { recursive: true });
  const backend = new ProcessBackend();
  const handle = await backend.create({
    ...{ sandboxId: `sb-${path.basename(root)}`, workspaceDir, controlDir, spec: SandboxSpec.parse({}) },
  });
  t.after(() => backend.destroy(handle));
  let countedBefore = true;
  const bash = await Bash.open(
    {
      backend: Object.assign(Object.create(backend), {
        processes: () => (countedBefore ? [] : backend.processes(handle)),
      }),
      ...{ handle, controlDir: path.join(controlDir, 's'), folder: 's', cwd: workspaceDir },
      onOutput: () => {},
      // What backends count is told to all who ask in the same turn of the event loop.
      onCompletion: () =>
        setImmediate(() => {
          countedBefore = false;
        }),
    },
    60_000,
  );
  t.after(() => bash.kill());
  const [leader] = bash.ownProcesses.slice(-1);
  assert.deepEqual(bash.ownProcesses, [leader, leader], 'here bash is the one that leads its terminal');
});
