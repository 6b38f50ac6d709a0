import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { PROBE } from '../../activities/llm/identity.ts';
import { LlmServers } from '../../activities/llm/servers.ts';
import { readTokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';
import type { GenerateRequest, LlmServer } from '../../contracts/llm.ts';
import { tokenizerFolder } from '../support/tokenizer-folders.ts';
import { embedded, NEVER, slotsBusy } from './embedded.ts';
import { type FakeLlm, type FakeOptions, fakeLlm } from './fakes/fake-llm.ts';
import { END, sampleTurn } from './fakes/tiny-model.ts';

const REQUEST: GenerateRequest = { promptIds: [5, 6, 7], maxTokens: 40, temperature: 1, topP: 1, seed: 4 };
const TURN = sampleTurn(REQUEST.promptIds, { ...REQUEST, seed: 4, stopIds: [END] }).map(({ id }) => id);
const BACK_OFF = { firstMs: 20, mostMs: 80 };
/** So long that nobody is asked back within a test. */
const LONG = { firstMs: 600_000, mostMs: 600_000 };

let scratch: string;
let tokenizer: string;
let encode: (text: string) => number[];
before(async () => {
  scratch = await mkdtemp(path.join(os.tmpdir(), 'rollouts-servers-'));
  tokenizer = await tokenizerFolder('smollm2', scratch);
  const { codec } = await readTokenizerFolder(tokenizer);
  const known = new Map<string, number[]>();
  for (const text of PROBE) known.set(text, await codec.tokenize(text, { parseSpecial: true }, NEVER));
  encode = (text) => known.get(text) ?? [];
});
after(() => rm(scratch, { recursive: true }));

/** Servers with the tiny model, one of each of these behaviours; versions count from 0. */
async function pool(behaviours: readonly FakeOptions[], backOff = BACK_OFF) {
  const fakes: FakeLlm[] = [];
  for (const behaviour of behaviours) fakes.push(await fakeLlm('vllm', { encode, ...behaviour }));
  const entries = fakes.map(
    ({ url }, policyVersion): LlmServer => ({ url, dialect: 'vllm', policyVersion, tokenizer }),
  );
  const servers = new LlmServers(entries, {}, backOff);
  const close = async () => {
    await servers.close();
    for (const fake of fakes) await fake.close();
  };
  return { fakes, servers, close };
}

test('rollouts are spread, and each keeps its server', async () => {
  const { servers, close } = await pool([{}, {}, {}]);
  try {
    const policies = [];
    for (let n = 0; n < 6; n++) policies.push(await servers.open(`r${n}`, { signal: NEVER }));
    const counts = new Map<string, number>();
    for (const { server } of policies) counts.set(server, (counts.get(server) ?? 0) + 1);
    assert.deepEqual([...counts.values()], [2, 2, 2]);
    for (const policy of policies) {
      const { server } = policy;
      assert.deepEqual((await policy.generate(REQUEST, NEVER)).ids, TURN);
      await policy.generate(REQUEST, NEVER);
      assert.equal(policy.server, server);
      policy.close();
    }
    for (const member of servers.balancer.members) assert.equal(servers.balancer.loadOf(member), 0);
  } finally {
    await close();
  }
});

test('a server that dies in a turn hands it over: the same tokens, each part with its own version', async () => {
  const { fakes, servers, close } = await pool([{ cutAfter: 3 }, {}]);
  try {
    const policy = await servers.open('r', { signal: NEVER });
    assert.equal(policy.server, fakes[0]?.url);
    const part = await policy.generate(REQUEST, NEVER);
    assert.deepEqual([part.ids, part.finish], [TURN.slice(0, 3), 'abort']);
    assert.equal(part.logprobs.length, 3);
    assert.deepEqual(part.versions, [{ version: 0, start: 0, end: 3 }]);
    const promptIds = [...REQUEST.promptIds, ...part.ids];
    const rest = await policy.generate({ ...REQUEST, promptIds }, NEVER);
    assert.equal(policy.server, fakes[1]?.url);
    assert.deepEqual(rest.versions, [{ version: 1, start: 0, end: rest.ids.length }]);
    assert.deepEqual(fakes[1]?.seen.at(-1)?.body.token_ids, promptIds);
    assert.equal(rest.finish, 'stop');
  } finally {
    await close();
  }
});

test('a server that dies before a token came is replaced without a word', async () => {
  const { fakes, servers, close } = await pool(
    [{ cutAfter: 0 }, { refuse: { status: 503, words: 'busy' } }, {}],
    LONG,
  );
  try {
    const policy = await servers.open('r', { signal: NEVER });
    const { ids, finish } = await policy.generate(REQUEST, NEVER);
    assert.deepEqual([ids, finish], [TURN, 'stop']);
    assert.equal(policy.server, fakes[2]?.url);
    const members = servers.balancer.members.filter((member) => servers.balancer.isHealthy(member));
    assert.deepEqual(
      members.map(({ server }) => server.url),
      [fakes[2]?.url],
    );
  } finally {
    await close();
  }
});

test('a server that breaks requests off is asked again a few times, as in a swap, and then left', async () => {
  const { fakes, servers, close } = await pool([{ breakOff: true }, {}], LONG);
  try {
    const policy = await servers.open('r', { signal: NEVER });
    for (let times = 0; times < 3; times++) {
      const { ids, finish } = await policy.generate(REQUEST, NEVER);
      assert.deepEqual([ids, finish], [[], 'abort']);
    }
    assert.deepEqual((await policy.generate(REQUEST, NEVER)).ids, TURN);
    assert.equal(policy.server, fakes[1]?.url);
  } finally {
    await close();
  }
});

test('without another server, what was wrong with the last one is said', async () => {
  const { fakes, servers, close } = await pool([{ refuse: { status: 503, words: 'out of memory' } }]);
  try {
    const policy = await servers.open('r', { signal: NEVER });
    const refusal = { type: 'LlmUnreachable', message: /503: out of memory/ };
    await assert.rejects(policy.generate(REQUEST, NEVER), refusal);
    const asked = fakes[0]?.seen.filter(({ path: asked }) => asked === '/inference/v1/generate');
    assert.equal(asked?.length, 1, 'once, not again and again');
    await assert.rejects(policy.generate(REQUEST, NEVER), refusal);
  } finally {
    await close();
  }
});

test('a server that comes back is found and gets rollouts again', async () => {
  const { fakes, servers, close } = await pool([{}, {}]);
  try {
    const [first] = servers.balancer.members;
    assert.ok(first);
    servers.failed(first);
    assert.equal((await servers.open('a', { signal: NEVER })).server, fakes[1]?.url);
    while (!servers.balancer.isHealthy(first)) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.ok(fakes[0]?.seen.some(({ path: asked }) => asked === '/health'));
    assert.equal((await servers.open('b', { signal: NEVER })).server, fakes[0]?.url);
  } finally {
    await close();
  }
});

test('a rollout goes on only where its tokens mean the same and its context fits', async () => {
  const small = await fakeLlm('vllm', { encode });
  const dying = await fakeLlm('vllm', { encode, cutAfter: 0 });
  const entry = { dialect: 'vllm', policyVersion: 0, tokenizer } as const;
  const entries: LlmServer[] = [
    { ...entry, url: dying.url },
    { ...entry, url: small.url, contextTokens: 32 },
  ];
  const servers = new LlmServers(entries, {}, BACK_OFF);
  try {
    const policy = await servers.open('r', { signal: NEVER });
    assert.equal(policy.contextTokens, 64);
    await assert.rejects(policy.generate(REQUEST, NEVER), { type: 'LlmUnreachable', message: /generate/ });
    assert.ok(small.seen.some(({ path: asked }) => asked === '/v1/models'));
    assert.ok(!small.seen.some(({ path: asked }) => asked === '/inference/v1/generate'));
  } finally {
    await servers.close();
    await small.close();
    await dying.close();
  }
});

test('two real servers: one that is killed in the middle of a turn is gone on for by the other', async () => {
  const [first, second] = await Promise.all([
    embedded({ contextTokens: 512, parallel: 1 }),
    embedded({ contextTokens: 512, parallel: 1 }),
  ]);
  const entries = [first, second].map(
    ({ server }, policyVersion): LlmServer => ({ url: server.url, dialect: 'llama.cpp', policyVersion }),
  );
  const servers = new LlmServers(entries, {}, LONG);
  try {
    const policy = await servers.open('r', { signal: NEVER });
    assert.equal(policy.server, first.server.url);
    const promptIds = await policy.renderPrompt([{ role: 'user', content: 'Tell a long story.' }]);
    const request = { promptIds, maxTokens: 200, temperature: 1, topP: 1, seed: 5 };
    const generating = policy.generate(request, NEVER);
    while (!(await slotsBusy(first.server.url)));
    process.kill(first.server.pid, 'SIGKILL');
    let turn = await generating;
    const ids = [...turn.ids];
    const logprobs = [...turn.logprobs];
    if (turn.finish === 'abort') {
      assert.equal(turn.versions[0]?.version, 0);
      turn = await policy.generate({ ...request, promptIds: [...promptIds, ...ids], maxTokens: 4 }, NEVER);
      ids.push(...turn.ids);
      logprobs.push(...turn.logprobs);
    }
    assert.equal(turn.versions[0]?.version, 1);
    assert.equal(policy.server, second.server.url);
    assert.equal(logprobs.length, ids.length);
    // What renders and reads now is the other one's tokenizer.
    assert.equal(
      await policy.text(ids),
      await second.dialect.detokenize(turn.finish === 'stop' ? ids.slice(0, -1) : ids, NEVER),
    );
    assert.ok((await policy.renderDelta(ids, [{ role: 'tool', content: 'x' }])).length > 0);
  } finally {
    await servers.close();
    await first.close();
    await second.close();
  }
});
