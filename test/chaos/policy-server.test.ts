import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PolicyServer } from '../../chaos/policy-server.ts';
import { END } from '../../chaos/tokens.ts';
import { viewOf } from '../support/pool.ts';

const task = { name: 't00', kind: 'usual', turns: 6 };
const NEVER = new AbortController().signal;

async function servers() {
  const server = await PolicyServer.start();
  const llm = viewOf([{ url: server.url, dialect: 'llama.cpp', policyVersion: 7 }]);
  const policy = await llm.open('r', { signal: NEVER });
  const promptIds = await policy.renderPrompt([{ role: 'user', content: `Task ${JSON.stringify(task)}` }]);
  const request = { promptIds, maxTokens: 2000, temperature: 1, topP: 1 };
  const close = async () => {
    await llm.close();
    await server.close();
  };
  return { server, policy, request, close };
}

test('the same prompt has the same tokens, in one request or in several', async () => {
  const { server, policy, request, close } = await servers();
  const whole = await policy.generate(request, NEVER);
  assert.equal(whole.finish, 'stop');
  assert.equal(whole.ids.at(-1), END);
  assert.match(await policy.text(whole.ids), /^```bash\necho 0\.0 [0-9a-f]{12} >> calls\n/);
  server.pace = { tokens: 10, ms: 20 };
  const stop = new AbortController();
  const part = policy.generate(request, stop.signal);
  while ((server.served.at(-1)?.delivered ?? 0) < 20 || server.served.length < 2) await tick();
  stop.abort();
  const begun = await part;
  assert.equal(begun.finish, 'abort');
  const promptIds = [...request.promptIds, ...begun.ids];
  const rest = await policy.generate({ ...request, promptIds }, NEVER);
  assert.deepEqual([...begun.ids, ...rest.ids], whole.ids);
  assert.deepEqual([...begun.logprobs, ...rest.logprobs], whole.logprobs);
  await close();
});

test('a turn broken off between its last token and the word of its end is whole', async () => {
  const { server, policy, request, close } = await servers();
  server.pace = { tokens: 1000, ms: 60_000 };
  const brokenOffAfter = async (ms: number) => {
    const stop = new AbortController();
    const generating = policy.generate(request, stop.signal);
    setTimeout(() => stop.abort(), ms);
    return generating;
  };
  let turn = await brokenOffAfter(20);
  // Tokens may take any time to come: until they have, nothing is whole.
  for (let ms = 40; turn.ids.length === 0; ms *= 2) {
    assert.equal(turn.finish, 'abort');
    turn = await brokenOffAfter(ms);
  }
  assert.deepEqual([turn.ids.at(-1), turn.finish], [END, 'stop']);
  await close();
});

test('a rollout that went on otherwise than the policy would is refused', async () => {
  const { policy, request, close } = await servers();
  const promptIds = [...request.promptIds, 65];
  await assert.rejects(policy.generate({ ...request, promptIds }, NEVER), { type: 'LlmRejected' });
  await close();
});

const tick = () => new Promise((resolve) => setTimeout(resolve, 2));
