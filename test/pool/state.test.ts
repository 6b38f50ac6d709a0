import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { LlmServer } from '../../contracts/llm.ts';
import {
  POOL_UPDATES,
  type PoolMember,
  type PoolState,
  type PoolUpdate,
  versionOf,
} from '../../contracts/pool.ts';
import * as commands from '../../contracts/pool-commands.ts';
import { poolProblem } from '../../workflows/pool-guards.ts';
import * as pool from '../../workflows/pool-state.ts';
import { FACTS, poolMember, poolState } from '../support/pool.ts';

const server = (url: string, policyVersion = 3): LlmServer => ({ url, dialect: 'vllm', policyVersion });
const URLS = ['http://a', 'http://b', 'http://c'];

test('every change makes a later epoch and touches nothing but what it is about', () => {
  const url = fc.constantFrom(...URLS);
  const change = fc.oneof(
    url.map((name) => (state: PoolState) => pool.withMember(state, poolMember(server(name)))),
    url.map((name) => (state: PoolState) => pool.withoutMember(state, name)),
    fc.record({ name: url, version: fc.nat(9) }).map(
      ({ name, version }) =>
        (state: PoolState) =>
          pool.changed(state, [name], (member) => pool.serving(member, version)),
    ),
    url.map(
      (name) => (state: PoolState) => pool.changed(state, [name], (member) => pool.out(member, 'broken')),
    ),
    fc.nat(9).map((floor) => (state: PoolState) => pool.withFloor(state, floor)),
  );
  fc.assert(
    fc.property(fc.array(change, { maxLength: 30 }), (changes) => {
      let state = pool.emptyPool({ pool: 'p', leaseSeconds: 5 }, 1_000);
      for (const make of changes) {
        const next = make(state);
        assert.equal(next.epoch, state.epoch + 1);
        const names = next.members.map((member) => member.server.url);
        assert.equal(new Set(names).size, names.length, 'one member for each address');
        for (const { state: how, why } of next.members) assert.equal(why === null, how === 'active');
        const touched = next.members.filter((member) => !state.members.includes(member));
        assert.ok(touched.length <= 1);
        state = next;
      }
    }),
  );
});

test('a server that serves anything else than the others of its labels is refused with what differs', () => {
  const one = poolMember(server('http://a'), { facts: { ...FACTS, model: 'm', parameterCount: 7 } });
  const judge = poolMember(server('http://j', 0), { labels: ['judge'], facts: { ...FACTS, model: 'j' } });
  const state = poolState([one, judge]);
  const joining = (
    facts: object,
    more: { policyVersion?: number; labels?: string[]; swapTo?: number } = {},
  ) => {
    const { policyVersion = 3, labels = ['policy'], swapTo } = more;
    const found = { server: server('http://new', policyVersion), facts: { ...one.facts, ...facts }, labels };
    return pool.differences(state, found, swapTo);
  };
  assert.deepEqual(joining({}), []);
  assert.deepEqual(
    joining({ vocabularySize: null, contextTokens: 9 }),
    [],
    'what is not told is not compared',
  );
  const cases: [object, RegExp][] = [
    [{ model: 'n' }, /^model: "n", http:\/\/a serves "m"$/],
    [{ vocabularySize: 13 }, /^vocabulary: 13 tokens, http:\/\/a has 12$/],
    [{ parameterCount: 8 }, /^parameters: 8, /],
    [{ tokenizerHash: 'sha256:x' }, /^tokenizer: the probe text is encoded otherwise/],
    [{ templateHash: 'sha256:x' }, /^chat template: /],
    [{ version: '4' }, /^policyVersion: the server itself says 4, not 3$/],
  ];
  for (const [facts, words] of cases) {
    const found = joining(facts);
    assert.equal(found.length, 1);
    assert.match(found[0] as string, words);
  }
  assert.match(
    joining({}, { policyVersion: 2 })[0] as string,
    /^policyVersion: 2, the others of "policy" sample with 3$/,
  );
  assert.deepEqual(
    joining({ model: 'next' }, { policyVersion: 4, swapTo: 4 }),
    [],
    'a checkpoint has its own name',
  );
  assert.match(joining({}, { labels: ['judge'], policyVersion: 0 })[0] as string, /serves "j"/);
  assert.deepEqual(joining({ model: 'x' }, { labels: ['h100'] }), [], 'nobody else has that label');
});

test('a server that was started again with other weights is no longer what the pool took it for', () => {
  const swapped = poolMember(server('http://a', 5), { facts: { ...FACTS, version: '5' } });
  const again = {
    server: server('http://a', 5),
    facts: { ...FACTS, version: 'default' },
    labels: ['policy'],
  };
  assert.match(pool.differences(poolState([swapped]), again)[0] as string, /was it started again/);
});

test('the version of a label is the newest of its servers that are in use', () => {
  const members: PoolMember[] = [
    poolMember(server('http://a', 3)),
    poolMember(server('http://b', 9), { state: 'out', why: 'x' }),
    poolMember(server('http://c', 7), { labels: ['judge'] }),
  ];
  assert.equal(versionOf({ members }), 3);
  assert.equal(versionOf({ members }, 'judge'), 7);
  assert.equal(versionOf({ members: [] }), undefined);
});

test('the workflow’s guards take what the schemas give, and refuse what they refuse', () => {
  const schemas = {
    add: commands.AddServer,
    remove: commands.RemoveServer,
    drain: commands.DrainServer,
    label: commands.LabelServer,
    swap: commands.SwapWeights,
    floor: commands.RaiseFloor,
  } satisfies Record<PoolUpdate, unknown>;
  const url = 'http://gpu-3:8000';
  const right: Record<PoolUpdate, object[]> = {
    add: [
      { server: { url: `${url}/` } },
      { server: { url, dialect: 'vllm', tokenizer: '/t' }, labels: ['a', 'b'] },
    ],
    remove: [{ url }],
    drain: [{ url }, { url, drainSeconds: 0 }],
    label: [{ url, labels: ['judge'] }],
    swap: [
      { mode: 'abort', version: 4, folder: '/w' },
      { mode: 'blueGreen', version: 4, servers: [{ url }] },
    ],
    floor: [{ version: 0 }],
  };
  const wrong: Record<PoolUpdate, object[]> = {
    add: [
      {},
      { server: { url: 'gpu-3' } },
      { server: { url, dialect: 'ollama' } },
      { server: { url }, labels: [] },
    ],
    remove: [{}, { url: 'x' }],
    drain: [{ url, drainSeconds: -1 }],
    label: [{ url }, { url, labels: ['not one word'] }],
    swap: [
      { mode: 'abort', version: 4 },
      { mode: 'blueGreen', version: 4 },
      { mode: 'x', version: 1, folder: '/w' },
    ],
    floor: [{}, { version: -1 }, { version: 0.5 }],
  };
  for (const name of POOL_UPDATES) {
    for (const payload of right[name]) {
      const parsed = schemas[name].safeParse(payload);
      assert.ok(parsed.success, `${name}: ${JSON.stringify(payload)}`);
      assert.equal(poolProblem(name, parsed.data), null);
    }
    for (const payload of wrong[name]) {
      assert.equal(schemas[name].safeParse(payload).success, false);
      assert.match(poolProblem(name, payload) ?? '', /^\w+(, \w+)*: /);
    }
    assert.notEqual(poolProblem(name, null), null);
  }
});
