import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { MockActivityEnvironment } from '@temporalio/testing';
import { z } from 'zod';
import { fenced } from '../../activities/agent/parsers/fenced.ts';
import { bash, defineHandler, editor, finish, ipython } from '../../activities/handlers/kit.ts';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { makeInitActivities } from '../../activities/init.ts';
import { makeRunActivities } from '../../activities/run.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { loadTools } from '../../config/tools.ts';
import { startHost } from '../sandbox/support.ts';
import { letterPolicy } from '../support/letters.ts';
import { settledRequest } from '../support/settled.ts';

const fence = (language: string, content: string) => `\`\`\`${language}\n${content}\n\`\`\``;
const edit = (args: object) => fence('editor', JSON.stringify(args));

/** One turn each; the last has calls after the one that ends it. */
const replies = [
  edit({ command: 'create', path: 'sum.py', file_text: 'def add(a, b):\n\treturn a - b\n' }),
  edit({ command: 'str_replace', path: 'sum.py', old_str: 'a - b', new_str: 'a + b' }),
  fence('python', 'import sum as s\ns.add(2, 3)'),
  `I am done.\n${fence('finish', '5')}\n${fence('bash', 'touch too-late')}`,
  'never sampled',
];

test('a handler gives all tools to its agent, and what they need to its sandbox', async (t) => {
  const { client: sandboxes, stateDir } = await startHost(t);
  const outcomes: unknown[] = [];
  const handler = defineHandler({
    name: 'tools',
    description: 'Uses every tool.',
    schema: z.object({}),
    example: {},
    tools: () => [bash, editor, ipython, finish],
    prompt: async () => [{ role: 'user', content: 'Add.' }],
    outcome: async ({ answer, messages, sandbox }) => {
      const said = messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
      const files = await sandbox.exec({ argv: ['ls'], timeoutMs: 10_000 });
      outcomes.push({ answer, said, files: files.stdout.text });
      return { answer };
    },
    evaluate: async () => ({ total: 1, parts: {} }),
  });
  const handlers = new HandlerRegistry([handler as never]);
  const store = new TrajectoryStore(path.join(stateDir, 'store'));
  const policies = { open: async () => ({ ...letterPolicy({ replies }), close: () => {} }) };
  const request = settledRequest({
    rolloutId: 'tools:1',
    task: { handler: 'tools', id: 'one', data: {} },
  });
  const workflowExecution = { workflowId: request.rolloutId, runId: 'run-1' };
  const env = new MockActivityEnvironment({ heartbeatTimeoutMs: 30_000, workflowExecution });
  const { init } = makeInitActivities({ handlers, sandboxes, host: loadTools(), store });
  const { run } = makeRunActivities({ handlers, sandboxes, policies, parser: fenced, store });

  const placement = (await env.run(() => init({ request, attempt: 1 }))) as Awaited<ReturnType<typeof init>>;
  const report = (await env.run(() => run({ request, attempt: 1, placement }))) as Awaited<
    ReturnType<typeof run>
  >;

  assert.deepEqual([report.ended, report.turns], ['finished', 4]);
  assert.deepEqual(outcomes, [
    {
      answer: '5',
      said: [
        'Created.',
        'Edited:\n     1\tdef add(a, b):\n     2\t\treturn a + b',
        '5',
        'Done.',
        'Not run: the call before it ended the task.',
      ],
      files: '__pycache__\nsum.py\n',
    },
  ]);
});
