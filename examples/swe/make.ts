/**
 * Makes instances of software engineering from released versions of packages: `npx tsx examples/swe/make.ts FOLDER` writes
 * FOLDER/instances.jsonl, for `rollouts run --handler swe`. Sources and packages come by pip; the rows name absolute
 * paths in FOLDER, which has to be on the machines that run sandboxes. Which tests the fix makes pass is found by running
 * them with and without it.
 */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { runTests } from '../../activities/handlers/swe/grade.ts';
import { passes } from '../../activities/handlers/swe/report.ts';
import { sandboxOf } from '../../activities/handlers/swe/sandbox.ts';
import { instanceOf } from '../../activities/handlers/swe/task.ts';
import type { SandboxClient } from '../../activities/sandbox/client.ts';
import { GraderSandboxes } from '../../activities/sandbox/for-grader.ts';
import { GradingHost } from '../../client/grading-host.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { type Draft, makeDraft } from './draft.ts';
import { RECIPES } from './recipes.ts';

/** All instances, whole. */
export async function makeInstances(
  folder: string,
  sandboxes: () => Promise<SandboxClient>,
): Promise<Record<string, unknown>[]> {
  const rows: Record<string, unknown>[] = [];
  for (const recipe of RECIPES) {
    const draft = await makeDraft(recipe, folder, loadTools().python);
    rows.push(await completed(draft, sandboxes));
  }
  return rows;
}

async function completed({ row, patch }: Draft, sandboxes: () => Promise<SandboxClient>) {
  const instance = instanceOf({ ...row, FAIL_TO_PASS: ['?'], PASS_TO_PASS: [] });
  const { environment } = instance;
  const spec = sandboxOf(environment);
  const owner = { rolloutId: `make-${row.instance_id}`, workflowRunId: 'make', attempt: 1 };
  const fresh = new GraderSandboxes(sandboxes, owner, spec, new AbortController().signal);
  try {
    const passing = async (applied: string) => {
      const ran = await runTests(await fresh.make(), instance, { patch: Buffer.from(applied), seconds: 300 });
      const ids = (ran.results ?? [])
        .filter(({ status }) => passes(status))
        .map(({ place, name }) => idOf(place, name, instance.testFiles));
      return new Set(ids);
    };
    const [without, withFix] = [await passing(''), await passing(patch)];
    const failToPass = [...withFix].filter((id) => !without.has(id));
    return { ...row, FAIL_TO_PASS: failToPass, PASS_TO_PASS: [...withFix].filter((id) => without.has(id)) };
  } finally {
    await fresh.release();
  }
}

/** pytest's own id of a test in a report. */
function idOf(place: string, name: string, files: readonly string[]): string {
  const file = files.find((one) => {
    const module = one.replace(/\.py$/, '').replaceAll('/', '.');
    return place === module || place.startsWith(`${module}.`);
  });
  if (file === undefined) return name;
  const classes = place
    .slice(file.length - '.py'.length)
    .split('.')
    .filter((part) => part !== '');
  return [file, ...classes, name].join('::');
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const folder = path.resolve(process.argv[2] ?? 'swe-instances');
  const host = new GradingHost(loadConfig());
  try {
    const rows = await makeInstances(folder, host.client);
    const file = path.join(folder, 'instances.jsonl');
    await writeFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    process.stdout.write(`${rows.length} instances: ${file}\n`);
  } finally {
    await host.close();
  }
}
