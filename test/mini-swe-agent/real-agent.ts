/** Run by `npm run test:agents`, with mini-swe-agent from PyPI; too big for every run of the tests. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { ledgerProblems, proveLine } from '../../activities/trajectory/prove.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { miniSweAgent } from '../../examples/handlers/mini-swe-agent.ts';
import { stages } from '../endpoint/support.ts';
import { embedded } from '../llm/embedded.ts';
import { decode, letterPolicy } from '../support/letters.ts';
import { viewOf } from '../support/pool.ts';

const { environment } = JSON.parse(
  readFileSync(path.join(PROJECT_ROOT, '.rollouts', 'mini-swe-agent.json'), 'utf8'),
) as { environment: string };
const handler = miniSweAgent(environment);

const act = (command: string) => `THOUGHT: So.\n\n\`\`\`mswea_bash_command\n${command}\n\`\`\``;

test('mini-swe-agent mends a file in its sandbox, by a policy that plays a solution', async (t) => {
  const replies = [
    act('cat double.py'),
    act('sed -i "s/+ 2/* 2/" double.py'),
    act('echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT'),
  ];
  const s = await stages(t, {
    policy: letterPolicy({ replies, contextTokens: 100_000 }),
    handler,
    sampling: { maxTokensPerTurn: 1000 },
  });
  const placement = await s.init();
  const report = await s.run(placement);
  assert.deepEqual([report.ended, report.turns], ['finished', 3]);
  const result = await s.evaluate(placement, report);
  assert.deepEqual(result.reward, { total: 1, parts: { solved: 1 } });
  const [trajectory, ...more] = await s.trajectories();
  assert.deepEqual(more, [], 'one conversation, one sequence');
  assert.ok(trajectory);
  const sampled = trajectory.output_ids.filter((_, at) => trajectory.loss_mask[at] === 1);
  assert.equal(decode(sampled), replies.join(''));
  assert.match(trajectory.messages[3]?.content ?? '', /int\(sys.argv\[1\]\) \+ 2/);
});

test('mini-swe-agent by the real SmolLM2: whatever it makes of it, its tokens are exact', async (t) => {
  const { server, close } = await embedded({ contextTokens: 8192, parallel: 1 });
  const servers = viewOf([{ url: server.url, dialect: 'llama.cpp', policyVersion: 7 }]);
  t.after(async () => {
    await servers.close();
    await close();
  });
  const s = await stages(t, {
    policies: servers,
    handler,
    limits: { maxTurns: 2 },
    sampling: { maxTokensPerTurn: 64, seed: 1 },
  });
  const placement = await s.init();
  const report = await s.run(placement);
  assert.equal(report.turns, 2);
  assert.ok((await s.evaluate(placement, report)).reward);
  // It leaves answers out in which it finds no command, and so begins another sequence then.
  const trajectories = await s.trajectories();
  const records = await s.records();
  for (const line of trajectories) {
    assert.deepEqual(proveLine(JSON.stringify(line)).problems, []);
    assert.deepEqual(ledgerProblems(line, records), []);
  }
  const sampled = trajectories.flatMap((one) =>
    one.policy_versions.filter((_, at) => one.loss_mask[at] === 1),
  );
  assert.equal(sampled.length, report.tokens);
  assert.deepEqual([...new Set(sampled)], [7]);
});
