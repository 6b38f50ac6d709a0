import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assembleTrajectory } from '../../activities/trajectory/assemble.ts';
import { problemsOf } from '../../chaos/checks.ts';
import type { Evidence } from '../../chaos/evidence.ts';
import { KINDS, makePlan } from '../../chaos/plan.ts';
import { replyTo } from '../../chaos/policy.ts';
import type { Served } from '../../chaos/policy-server.ts';
import { Random } from '../../chaos/random.ts';
import { type ChaosTask, makeTasks } from '../../chaos/tasks.ts';
import { ASSISTANT, decode, encode } from '../../chaos/tokens.ts';
import type { LedgerLine, LedgerRecord } from '../../contracts/ledger.ts';
import { recordIdentity, recordTimings } from '../../contracts/record.ts';
import { RolloutRequest } from '../../contracts/request.ts';
import type { RolloutResult } from '../../contracts/result.ts';

const task: ChaosTask = { name: 't00', kind: 'usual', turns: 3 };
const request = RolloutRequest.parse({
  rolloutId: 'storm-t00',
  task: { handler: 'chaos', id: 't00', data: { ...task } },
});
const now = new Date(0).toISOString();

/** What a rollout leaves that nobody disturbed, as the recorded policy makes it. */
function undisturbed(): Evidence & { served: Served[] } {
  const promptIds = [...encode(`Task ${JSON.stringify(task)}\n`), ...ASSISTANT];
  const model = { name: 'm', model_hash: 'a', tokenizer_hash: 'b', template_hash: 'c' };
  const records: LedgerRecord[] = [{ kind: 'begin', promptIds, messages: [], tools: [], model }];
  const served: Served[] = [];
  const calls: string[] = [];
  let prompt = promptIds;
  for (let turn = 0; turn < task.turns; turn++) {
    const { ids, probabilities } = replyTo(prompt);
    const text = decode(ids);
    calls.push(...[...text.matchAll(/^echo (.*) >> calls$/gm)].map((match) => match[1] as string));
    const deltaIds = [...encode(`ran ${calls.length}\n`), ...ASSISTANT];
    records.push({
      ...{ kind: 'sampled', turn, promptLength: prompt.length, ids, policyVersion: 7, finish: 'stop' },
      ...{ logprobs: probabilities.map(Math.log), text, calls: [], server: 's', startedAt: now, ms: 1 },
    });
    records.push({ kind: 'observed', turn, results: [], messages: [], deltaIds });
    served.push({ task: 't00', turn, at: 0, delivered: ids.length, end: 'complete', endedAt: 0 });
    prompt = [...prompt, ...ids, ...deltaIds];
  }
  records.push({ kind: 'end', ended: 'finished', outcome: { calls } });
  const parts = { asked: calls.length, ran: calls.length, once: calls.length };
  const terminal: RolloutResult = {
    ...recordIdentity(request, 'run'),
    ...{ outcome: 'completed', reward: { total: 1, parts }, truncation: null, cancel: null, failure: null },
    ...{
      retried: [],
      attempt: 1,
      host: 'a',
      backend: 'bubblewrap',
      policyVersions: [7, 7],
      trajectory: null,
    },
    ...{ startedAt: now, endedAt: now },
    timings: recordTimings(now, now, { initMs: 0, runMs: 0, evaluateMs: 0 }),
  };
  const context = { request, workflowRunId: 'run', attempt: 1, reward: terminal.reward, metadata: {} };
  const run = { type: 'run', identity: '1@m', startedAt: 1, endedAt: 2, how: 'completed' as const };
  return {
    flight: { task, rolloutId: 'storm-t00', result: terminal },
    terminal,
    trajectory: assembleTrajectory(records, context),
    stored: records,
    ledgers: new Map([[1, linesOf(records)]]),
    activities: [run],
    lostWithHost: false,
    served,
  };
}

function linesOf(records: readonly LedgerRecord[]): LedgerLine[] {
  return records.map((record, seq) => ({ seq, fence: 5, at: now, record, hash: '' }));
}

/** What the checks say of a rollout in which something was altered. */
function problemsAfter(alter: (evidence: ReturnType<typeof undisturbed>) => Partial<Evidence>): string[] {
  const storm = undisturbed();
  return problemsOf(undisturbed(), { ...storm, ...alter(storm) }, storm.served);
}

test('a rollout that is as it should be has no problems', () => {
  assert.deepEqual(
    problemsAfter(() => ({})),
    [],
  );
});

test('each way in which a rollout can have been disturbed is found', () => {
  const found = (expected: RegExp, alter: Parameters<typeof problemsAfter>[0]) =>
    assert.match(problemsAfter(alter).join('\n'), expected);
  found(/no terminal record/, () => ({ terminal: undefined }));
  found(/another record/, ({ terminal }) => ({ terminal: { ...(terminal as RolloutResult), attempt: 2 } }));
  found(/failed with the reward 1/, ({ terminal, flight }) => {
    const failed: RolloutResult = { ...(terminal as RolloutResult), outcome: 'failed' };
    return { terminal: failed, flight: { ...flight, result: failed } };
  });
  found(/not those of an undisturbed run/, ({ trajectory }) => {
    const ids = [...(trajectory?.output_ids ?? [])];
    ids[3] = 1;
    return { trajectory: { ...(trajectory as NonNullable<typeof trajectory>), output_ids: ids } };
  });
  found(/tool calls ran twice: 0\.0/, ({ stored }) => {
    const end = stored?.at(-1) as LedgerRecord & { kind: 'end' };
    const calls = end.outcome.calls as string[];
    const twice = { ...end, outcome: { calls: [calls[0], ...calls] } };
    return { stored: [...(stored as LedgerRecord[]).slice(0, -1), twice] };
  });
  found(/superseded/, ({ stored }) => ({
    ledgers: new Map([[1, linesOf(stored ?? []).map((line, at) => ({ ...line, fence: at === 3 ? 4 : 5 }))]]),
  }));
  found(/turns twice or not at all/, ({ stored }) => ({
    ledgers: new Map([[1, linesOf((stored ?? []).filter((_, at) => at !== 1 && at !== 2))]]),
  }));
  // Whole ones, one that was left, and one that was cut, whose tokens are in no record.
  for (const end of ['complete', 'closed', 'cut', 'hang'] as const) {
    found(/1 requests repeated over 1 entries/, ({ served }) => {
      served.push({ ...(served[1] as Served), end });
      return {};
    });
  }
  found(/1 requests repeated over 1 entries/, ({ served }) => {
    served.push({ ...(served[1] as Served), delivered: 0, end: 'closed' });
    return {};
  });
});

test('a request that was repeated for an entry that was broken off is none', () => {
  const alter: Parameters<typeof problemsAfter>[0] = ({ served, activities }) => {
    served.push({ ...(served[1] as Served) });
    return { activities: [...activities, ...activities] };
  };
  assert.deepEqual(problemsAfter(alter), []);
});

test('a request that the server refused before it gave a token may be sent again within its entry', () => {
  for (const end of ['error', 'hang'] as const) {
    const alter: Parameters<typeof problemsAfter>[0] = ({ served }) => {
      served.push({ ...(served[1] as Served), delivered: 0, end });
      return {};
    };
    assert.deepEqual(problemsAfter(alter), []);
  }
});

test('a seed makes the same tasks and the same plan again, with every kind of both', () => {
  const make = (seed: number) => {
    const random = new Random(seed);
    const tasks = makeTasks(40, random, [6, 12]);
    return { tasks, plan: makePlan(random, { windowMs: 60_000, once: false, stopMs: 7000 }) };
  };
  assert.deepEqual(make(3), make(3));
  assert.notDeepEqual(make(3).plan, make(4).plan);
  const { tasks, plan } = make(3);
  assert.deepEqual([...new Set(plan.map(({ kind }) => kind))].sort(), [...KINDS].sort());
  assert.equal(new Set(tasks.map(({ kind }) => kind)).size, 7);
  assert.ok(tasks.filter(({ kind }) => kind === 'usual').length >= 20);
  assert.ok(tasks.every(({ turns }) => turns >= 6 && turns <= 12));
});
