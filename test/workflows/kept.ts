import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import type { RolloutClient } from '../../client/rollout-client.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';

/** A rollout's history; with KEEP_HISTORIES it becomes a fixture of that folder. */
export async function keepHistory(client: RolloutClient, rolloutId: string) {
  const history = await client.temporal.workflow.getHandle(rolloutId).fetchHistory();
  if (process.env.KEEP_HISTORIES) {
    mkdirSync(process.env.KEEP_HISTORIES, { recursive: true });
    // Without the paths of the machine that it was recorded on.
    const text = historyToJSON(history).replaceAll(`${PROJECT_ROOT}/`, './');
    writeFileSync(path.join(process.env.KEEP_HISTORIES, `${rolloutId}.json`), text);
  }
  return history;
}

/** A place to wait at until somebody opens it. */
export function gate(): { passed: Promise<void>; open: () => void } {
  let open!: () => void;
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}
