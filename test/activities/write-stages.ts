import assert from 'node:assert/strict';
import path from 'node:path';
import type { TestContext } from 'node:test';
import { ApplicationFailure } from '@temporalio/activity';
import { MockActivityEnvironment } from '@temporalio/testing';
import { z } from 'zod';
import type { Policy } from '../../activities/agent/agent.ts';
import { fenced } from '../../activities/agent/parsers/fenced.ts';
import { makeControlActivities } from '../../activities/control.ts';
import { makeEvaluateActivities } from '../../activities/evaluate.ts';
import { bash, defineHandler, type EvaluateContext } from '../../activities/handlers/kit.ts';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { makeInitActivities } from '../../activities/init.ts';
import type { PoolView } from '../../activities/llm/pool-view.ts';
import { makeRunActivities } from '../../activities/run.ts';
import { type AttemptKey, TrajectoryStore } from '../../activities/trajectory/store.ts';
import { loadTools } from '../../config/tools.ts';
import { recordIdentity, recordTimings } from '../../contracts/record.ts';
import type { ConcludeInput, Placement, RunReport, Shelf } from '../../contracts/stages.ts';
import { startHost } from '../sandbox/support.ts';
import { letterPolicy } from '../support/letters.ts';
import { settledRequest } from '../support/settled.ts';

/** The rollout of these tests. */
export const request = settledRequest({
  rolloutId: 'stages:1',
  task: { handler: 'write', id: 'one', data: { content: 'hello' } },
});

export const RUN_ID = 'workflow-run-1';

/** What a test makes a part of the handler do instead, and the grade of what is right. It puts both back. */
export const script: {
  grade: () => number;
  instead: Partial<Record<'init' | 'prompt' | 'outcome', () => unknown>> & {
    evaluate?: (context: EvaluateContext<{ content: string }>) => unknown;
  };
} = { grade: () => 1, instead: {} };

/** A task that uses every part: a file at init, a shell, an outcome read from the sandbox, a grade. */
export const write = defineHandler({
  name: 'write',
  description: 'Write a file.',
  schema: z.object({ content: z.string() }),
  example: { content: 'x' },
  tools: () => [bash],
  prompt: async () =>
    (script.instead.prompt?.() as never) ?? [{ role: 'user', content: 'Copy in.txt to out.txt.' }],
  init: async ({ task, sandbox }) => {
    await script.instead.init?.();
    await sandbox.writeFile(`${sandbox.workspace}/in.txt`, task.content);
  },
  outcome: async ({ sandbox }) =>
    (script.instead.outcome?.() as never) ?? {
      file: (await sandbox.readFile(`${sandbox.workspace}/out.txt`)).toString(),
    },
  evaluate: async (context) => {
    const { task, outcome } = context;
    await script.instead.evaluate?.(context);
    const right = outcome.file === task.content ? script.grade() : 0;
    return { total: right, parts: { right } };
  },
});

/** What the policy samples. */
export const replies = ['```bash\ncp in.txt out.txt; echo $?\n```', '```bash\ncat out.txt\n```', 'done'];

/** The four factories around a real sandbox host and a real store. */
export async function stages(t: TestContext, policy: Policy = letterPolicy({ replies })) {
  const { client: sandboxes, stateDir } = await startHost(t);
  const handlers = new HandlerRegistry([write as never]);
  const store = new TrajectoryStore(path.join(stateDir, 'store'));
  const policies = { open: async () => ({ ...policy, close: () => {} }) };
  const workflowExecution = { workflowId: request.rolloutId, runId: RUN_ID };
  const env = new MockActivityEnvironment({ heartbeatTimeoutMs: 30_000, workflowExecution });
  const inActivity = <R>(work: () => Promise<R>) => env.run(work) as Promise<R>;
  const { init } = makeInitActivities({ handlers, sandboxes, host: loadTools(), store });
  const { run } = makeRunActivities({ handlers, sandboxes, policies, parser: fenced, store });
  const { evaluate, conclude } = makeEvaluateActivities({ handlers, store, sandboxes });
  const { abort, pause, release, shelve, copySoFar } = makeControlActivities({ sandboxes, store });
  const record = { startedAt: new Date().toISOString(), retried: [], initMs: 1, runMs: 1 };
  return {
    stateDir,
    sandboxes,
    store,
    inActivity,
    init: (asked = request) => inActivity(() => init({ request: asked, attempt: 1 })),
    run: (placement: Placement, asked = request, rest: { entry?: number; remainingMs?: number } = {}) =>
      inActivity(() => run({ request: asked, attempt: 1, placement, ...rest })),
    pause: ({ sandboxId }: Placement, entry: number) => inActivity(() => pause({ sandboxId, entry })),
    shelve: (placement: Placement, entry: number) =>
      inActivity(() => shelve({ request, attempt: 1, placement, entry })),
    unshelve: (shelf: Shelf) => inActivity(() => init({ request, attempt: 1, shelf })),
    runWith: (other: PoolView, placement: Placement) => {
      const made = makeRunActivities({ handlers, sandboxes, policies: other, parser: fenced, store });
      return inActivity(() => made.run({ request, attempt: 1, placement }));
    },
    evaluate: (placement: Placement, asked = request) => {
      const report = { policyVersions: [4, 4] } as unknown as RunReport;
      return inActivity(() => evaluate({ request: asked, attempt: 1, placement, record, report }));
    },
    conclude: (result: ConcludeInput['result']) =>
      inActivity(() => conclude({ request, attempt: 1, result })),
    copySoFar: (key: AttemptKey) => inActivity(() => copySoFar(key)),
    abort: ({ sandboxId }: Placement) => inActivity(() => abort({ sandboxId, reason: 'stale' })),
    release: (placement: Placement) =>
      inActivity(() => release({ request, attempt: 1, placement, reason: 'failed' })),
  };
}

/** Of an activity's failure: its type, and what it says. */
export const failsAs = (type: string, message?: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ApplicationFailure, String(error));
  assert.equal(error.type, type, error.message);
  if (message) assert.match(error.message, message);
  return true;
};

/** The part of a terminal record that the workflow gives to conclude. */
export function ungraded(): ConcludeInput['result'] {
  const now = new Date().toISOString();
  return {
    ...recordIdentity(request, RUN_ID),
    outcome: 'cancelled',
    reward: null,
    truncation: null,
    cancel: null,
    failure: null,
    retried: [],
    attempt: 1,
    host: null,
    backend: null,
    startedAt: now,
    endedAt: now,
    timings: recordTimings(now, now, { initMs: 0, runMs: 0, evaluateMs: 0 }),
  };
}
