import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { PROBE } from '../../activities/llm/identity.ts';
import { readTokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';
import type { GenerateRequest, LlmServer } from '../../contracts/llm.ts';
import { FACTS, poolMember, poolState, viewOf } from '../support/pool.ts';
import { tokenizerFolder } from '../support/tokenizer-folders.ts';
import { until } from '../support/until.ts';
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
  const live = behaviours.map((behaviour) => ({ encode, ...behaviour }));
  for (const behaviour of live) fakes.push(await fakeLlm('vllm', behaviour));
  const entries = fakes.map(
    ({ url }, policyVersion): LlmServer => ({ url, dialect: 'vllm', policyVersion, tokenizer }),
  );
  const servers = viewOf(entries, { backOff });
  const close = async () => {
    await servers.close();
    for (const fake of fakes) await fake.close();
  };
  return { fakes, live, servers, close };
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
    assert.deepEqual(
      servers.loads.map(({ load }) => load),
      [0, 0, 0],
    );
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
    const asked = fakes[1]?.seen.findLast(({ path: asked }) => asked === '/inference/v1/generate');
    assert.deepEqual(asked?.body.token_ids, promptIds);
    assert.equal(rest.finish, 'stop');
  } finally {
    await close();
  }
});

test('a server that dies between the last token of a turn and its end has given the whole turn', async () => {
  // The end is told with the last token or after it: here never.
  const endless = (event: Record<string, unknown>) => {
    const choices = event.choices as { finish_reason: unknown }[];
    return { ...event, choices: choices.map((choice) => ({ ...choice, finish_reason: null })) };
  };
  const { servers, close } = await pool([{ alter: endless }, {}], LONG);
  try {
    const policy = await servers.open('r', { signal: NEVER });
    const { ids, finish, versions } = await policy.generate(REQUEST, NEVER);
    assert.deepEqual([ids, finish], [TURN, 'stop']);
    assert.deepEqual(versions, [{ version: 0, start: 0, end: TURN.length }]);
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
    const healthy = servers.loads.filter((member) => member.healthy);
    assert.deepEqual(
      healthy.map(({ url }) => url),
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
    assert.equal(asked?.length, 3, 'a few times: it says that it is well');
    await assert.rejects(policy.generate(REQUEST, NEVER), refusal);
  } finally {
    await close();
  }
});

test('a server that comes back is found and gets rollouts again', async () => {
  const { fakes, live, servers, close } = await pool([{ cutAfter: 0 }, {}]);
  try {
    const policy = await servers.open('a', { signal: NEVER });
    assert.equal(policy.server, fakes[0]?.url);
    await policy.generate(REQUEST, NEVER);
    assert.equal(policy.server, fakes[1]?.url);
    delete (live[0] as { cutAfter?: number }).cutAfter;
    while (!servers.loads[0]?.healthy) await new Promise((resolve) => setTimeout(resolve, 5));
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
  const servers = viewOf(entries, { backOff: BACK_OFF });
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

test('a server behind which another model was put is not used until the pool knows of it', async () => {
  const { fakes, live, servers, close } = await pool([{}], BACK_OFF);
  const open = () => servers.open('r', { signal: AbortSignal.timeout(60_000) });
  try {
    (await open()).close();
    Object.assign(live[0] as object, { model: 'other' });
    const waiting = open();
    const looked = (fakes[0] as FakeLlm).seen.length;
    await until(async () => (fakes[0] as FakeLlm).seen.length >= looked + 4, 'it is looked at again');
    assert.deepEqual(await Promise.race([waiting, 'waiting']), 'waiting');
    const server: LlmServer = {
      url: (fakes[0] as FakeLlm).url,
      dialect: 'vllm',
      policyVersion: 1,
      tokenizer,
    };
    servers.take(poolState([poolMember(server)], { epoch: 2 }), performance.now());
    const policy = await waiting;
    assert.equal(policy.identity.name, 'other');
    assert.deepEqual((await policy.generate(REQUEST, NEVER)).versions, [
      { version: 1, start: 0, end: TURN.length },
    ]);
  } finally {
    await close();
  }
});

test('tokens of a server that was started again with another model between two turns do not count', async () => {
  const { fakes, live, servers, close } = await pool([{}, {}], LONG);
  try {
    const policy = await servers.open('r', { signal: NEVER });
    assert.equal((await policy.generate(REQUEST, NEVER)).server, fakes[0]?.url);
    Object.assign(live[0] as object, { model: 'other' });
    fakes[0]?.endConnections();
    const { ids, server, versions } = await policy.generate(REQUEST, NEVER);
    assert.deepEqual([ids, server], [TURN, fakes[1]?.url]);
    assert.deepEqual(versions, [{ version: 1, start: 0, end: TURN.length }]);
    const asked = fakes[0]?.seen.filter(({ path: asked }) => asked === '/inference/v1/generate');
    assert.equal(asked?.length, 2, 'it had answered');
  } finally {
    await close();
  }
});

test('requests that a server refuses for now wait for room there, and are not failures of it', async () => {
  const { fakes, live, servers, close } = await pool([{}], LONG);
  const behaviour = live[0] as { refuseBeyond?: number };
  behaviour.refuseBeyond = 2;
  try {
    const policies = await Promise.all(
      Array.from({ length: 8 }, (_, n) => servers.open(`r${n}`, { signal: NEVER })),
    );
    const turns = await Promise.all(policies.map((policy) => policy.generate(REQUEST, NEVER)));
    for (const { ids } of turns) assert.deepEqual(ids, TURN);
    assert.ok((fakes[0]?.refused ?? 0) > 0);
    assert.ok(servers.loads[0]?.healthy);
  } finally {
    await close();
  }
});

test('servers that join take the waiting and the next rollouts; one that goes gets no more', async () => {
  const { fakes, servers, close } = await pool([{}, {}]);
  const members = fakes.map(({ url }, policyVersion) =>
    poolMember({ url, dialect: 'vllm', policyVersion, tokenizer }),
  );
  try {
    servers.take(poolState([], { epoch: 2 }), performance.now());
    let waits: (value: unknown) => void = () => {};
    const waiting = new Promise((resolve) => {
      waits = resolve;
    });
    const opening = servers.open('r', { signal: NEVER, onWaiting: waits });
    assert.equal(await waiting, true);
    servers.take(poolState(members.slice(0, 1), { epoch: 3 }), performance.now());
    const policy = await opening;
    assert.equal((await policy.generate(REQUEST, NEVER)).server, fakes[0]?.url);
    servers.take(poolState(members.slice(1), { epoch: 4 }), performance.now());
    const { server, versions } = await policy.generate(REQUEST, NEVER);
    assert.deepEqual([server, versions[0]?.version], [fakes[1]?.url, 1]);
    const late = poolState(members.slice(0, 1), { epoch: 3 });
    servers.take(late, performance.now());
    assert.equal(
      (await policy.generate(REQUEST, NEVER)).server,
      fakes[1]?.url,
      'an older state changes nothing',
    );
  } finally {
    await close();
  }
});

test('labels route: a judge is sampled on the servers of judges', async () => {
  const { fakes, servers, close } = await pool([{}, {}]);
  const label = ['policy', 'judge'];
  const members = fakes.map(({ url }, n) =>
    poolMember({ url, dialect: 'vllm', policyVersion: n, tokenizer }, { labels: [label[n] as string] }),
  );
  try {
    servers.take(poolState(members, { epoch: 2 }), performance.now());
    for (let n = 0; n < 4; n++) {
      assert.equal((await servers.open(`r${n}`, { signal: NEVER })).server, fakes[0]?.url);
      assert.equal((await servers.open(`r${n}`, { signal: NEVER, label: 'judge' })).server, fakes[1]?.url);
    }
  } finally {
    await close();
  }
});

test('a request whose lease ran out before its first token does not count and begins again under the next', async () => {
  const { fakes, live, servers, close } = await pool([{}]);
  const [server] = fakes.map(({ url }): LlmServer => ({ url, dialect: 'vllm', policyVersion: 3, tokenizer }));
  let arrived = () => {};
  let answer = () => {};
  const there = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  const held = new Promise<void>((resolve) => {
    answer = resolve;
  });
  Object.assign(live[0] as object, {
    beforeTokens: () => {
      arrived();
      return held;
    },
  });
  try {
    const policy = await servers.open('r', { signal: NEVER });
    const generating = policy.generate(REQUEST, NEVER);
    await there;
    const member = poolMember(server as LlmServer);
    // It was asked so long ago that nothing is left of it.
    servers.take(poolState([member], { epoch: 2, leaseSeconds: 1 }), performance.now() - 1_000);
    await fakes[0]?.left;
    servers.take(poolState([member], { epoch: 3 }), performance.now());
    answer();
    const { ids, versions } = await generating;
    assert.deepEqual(ids, TURN);
    assert.deepEqual(versions, [{ version: 3, start: 0, end: ids.length }]);
  } finally {
    await close();
  }
});

test('a server that calls its weights otherwise than the pool knows was started again: its tokens do not count', async () => {
  const { fakes, servers, close } = await pool([{}]);
  const [server] = fakes.map(({ url }): LlmServer => ({ url, dialect: 'vllm', policyVersion: 8, tokenizer }));
  try {
    const policy = await servers.open('r', { signal: NEVER });
    const named = (version: string) => poolMember(server as LlmServer, { facts: { ...FACTS, version } });
    servers.take(poolState([named('8')], { epoch: 2 }), performance.now());
    await assert.rejects(policy.generate(REQUEST, NEVER), {
      type: 'LlmUnreachable',
      message: /its weights are "step-7", the pool knows "8": was it started again\?/,
    });
    servers.take(poolState([named('step-7')], { epoch: 3 }), performance.now());
    assert.deepEqual((await policy.generate(REQUEST, NEVER)).versions[0]?.version, 8);
  } finally {
    await close();
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
  const servers = viewOf(entries, { backOff: LONG });
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
