import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { MockActivityEnvironment } from '@temporalio/testing';
import { fenced as fencedParser } from '../../activities/agent/parsers/fenced.ts';
import { makeEvaluateActivities } from '../../activities/evaluate.ts';
import { makeInitActivities } from '../../activities/init.ts';
import { makeRunActivities } from '../../activities/run.ts';
import { readTrajectory, TrajectoryStore } from '../../activities/trajectory/store.ts';
import { loadTools } from '../../config/tools.ts';
import type { RunReport } from '../../contracts/stages.ts';
import { letterPolicy } from '../support/letters.ts';
import { settledRequest } from '../support/settled.ts';
import { startGrader } from './grader.ts';
import { sweTask } from './swe-repository.ts';

const block = (language: string, text: string) => `\`\`\`${language}\n${text}\n\`\`\``;
const bash = (command: string) => block('bash', command);

/** Looks for a text that only the grader may have, wherever the agent can look; the command itself does not hold it. */
const search = (marker: string) =>
  `grep -rslF --exclude-dir=lib -e '${marker.slice(0, 3)}''${marker.slice(3)}' /workspace /opt /tmp /etc /home /root /var ` +
  `/run/rollout /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; git -C repo log --all --oneline 2>/dev/null | wc -l; echo searched`;

/** One rollout by recorded replies through the three stages, in real sandboxes. */
async function rollOut(t: TestContext, handler: string, data: Record<string, unknown>, replies: string[]) {
  const { registry: handlers, client: sandboxes } = await startGrader(t);
  const folder = await mkdtemp(path.join(tmpdir(), 'store-'));
  t.after(() => rm(folder, { recursive: true }));
  const store = new TrajectoryStore(folder);
  const policies = { open: async () => ({ ...letterPolicy({ replies }), close: () => {} }) };
  const request = settledRequest({
    rolloutId: `${handler}:1`,
    task: { handler, id: 'one', data },
    sampling: { maxTokensPerTurn: 2000 },
  });
  const workflowExecution = { workflowId: request.rolloutId, runId: 'run-1' };
  const env = new MockActivityEnvironment({ heartbeatTimeoutMs: 30_000, workflowExecution });
  const inActivity = <R>(work: () => Promise<R>) => env.run(work) as Promise<R>;
  const { init } = makeInitActivities({ handlers, sandboxes, store, host: loadTools() });
  const { run } = makeRunActivities({ handlers, sandboxes, policies, parser: fencedParser, store });
  const { evaluate } = makeEvaluateActivities({ handlers, store, sandboxes });
  const placement = await inActivity(() => init({ request, attempt: 1 }));
  const report = (await inActivity(() => run({ request, attempt: 1, placement }))) as RunReport;
  const record = { startedAt: new Date().toISOString(), retried: [], initMs: 1, runMs: 1 };
  const result = await inActivity(() => evaluate({ request, attempt: 1, placement, record, report }));
  assert.ok(result.trajectory);
  const [trajectory] = await readTrajectory(result.trajectory);
  const said = (trajectory?.messages ?? [])
    .filter(({ role }) => role === 'tool')
    .map(({ content }) => content);
  return { result, said };
}

test('an agent solves a task of each kind with its tools, and finds nothing of its grader', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const expected = 'hidden-5c19e';
  const kinds: [string, Record<string, unknown>, string, string[], string][] = [
    [
      'math',
      { problem: 'What is 740291835 + 1?', answer: '740291836' },
      '740291836',
      [block('python', 'import sympy\nsympy.Integer(740291835) + 1'), 'So it is \\boxed{740,291,836}.'],
      '0\nsearched',
    ],
    [
      'code',
      {
        question: 'Print hidden-5c1 and then the sum of the input, in base 16.',
        input_output: JSON.stringify({ inputs: ['100 58\n'], outputs: [`${expected}\n`] }),
      },
      expected,
      [
        bash(
          'echo \'print("hidden-5c1" + hex(sum(map(int, input().split())))[2:])\' > a.py; echo 1 2 | python3 a.py',
        ),
        block('finish', 'print("hidden-5c1" + hex(sum(map(int, input().split())))[2:])'),
      ],
      '0\nsearched',
    ],
    [
      'stem',
      {
        question: 'How much are the Zyx and the Abc constant together?',
        answer: '42.75 m',
        documents: [
          {
            title: 'Constants',
            text: `${'Nothing of note.\n\n'.repeat(80)}The Zyx constant is 17.25 metres.`,
          },
          { title: 'Others', text: 'Abc: 25.5 m' },
        ],
      },
      '42.75 m',
      [
        block('search', 'the zyx constants?'),
        block('search', 'abc "'),
        'Together \\boxed{4275\\,\\text{cm}}.',
      ],
      '0\nsearched',
    ],
    [
      'swe',
      await sweTask(folder),
      'hidden_marker',
      [
        bash("cd repo && sed -i 's/ + 1//' calc/core.py && git commit -qam fixed && rm -rf .git"),
        block('finish', 'done'),
      ],
      '1\nsearched',
    ],
  ];
  for (const [handler, data, marker, replies, found] of kinds) {
    const command = search(marker);
    const first =
      handler === 'stem'
        ? block('python', `import subprocess\nprint(subprocess.getoutput(${JSON.stringify(command)}))`)
        : bash(command);
    const { result, said } = await rollOut(t, handler, data, [first, ...replies]);
    assert.equal(
      said.find((text) => text.includes('searched'))?.trim(),
      found,
      JSON.stringify([handler, said]),
    );
    if (handler === 'stem') {
      assert.match(said.at(-2) ?? '', /^\[1\] Constants\nNothing[\s\S]*Zyx constant is 17\.25/);
      assert.equal(said.at(-1), '[1] Others\nAbc: 25.5 m');
    }
    assert.equal(result.reward?.total, 1, `${handler}: ${JSON.stringify([result.reward, said])}`);
  }
});
