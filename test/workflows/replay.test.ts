import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from '@temporalio/worker';
import { workflowBundle } from '../support/workflows.ts';

const HISTORIES = fileURLToPath(new URL('../histories/', import.meta.url));

/**
 * Histories of every released version of the workflows are kept; today's code must replay them, or rollouts
 * that are open during a deploy would break. `KEEP_HISTORIES=test/histories/<version> node --import tsx
 * --test test/workflows/rollout.test.ts` writes them.
 */
test('kept histories replay with the present workflows', async () => {
  const bundle = await workflowBundle();
  const files = readdirSync(HISTORIES, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.json'),
  );
  assert.ok(files.length >= 33, `only ${files.length} histories are kept`);
  for (const file of files) {
    const history = JSON.parse(readFileSync(path.join(HISTORIES, file), 'utf8'));
    await Worker.runReplayHistory({ workflowBundle: bundle }, history, path.basename(file, '.json'));
  }
});
