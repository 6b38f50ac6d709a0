import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { makeDialect } from '../../activities/llm/dialects.ts';
import { PROBE } from '../../activities/llm/identity.ts';
import { openModel } from '../../activities/llm/model.ts';
import { readTokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';
import { assembleTrajectory, checksumOf } from '../../activities/trajectory/assemble.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { type VerifyOptions, verifyCommand } from '../../client/commands/verify.ts';
import { loadConfig } from '../../config/load.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import { RolloutRequest } from '../../contracts/request.ts';
import type { ModelIdentity, Trajectory } from '../../contracts/trajectory.ts';
import { fakeServer } from '../llm/fake-server.ts';
import { type FakeLlm, fakeLlm } from '../llm/fakes/fake-llm.ts';
import { tokenizerFolder } from '../support/tokenizer-folders.ts';

const NEVER = new AbortController().signal;
let folder: string;
let fake: FakeLlm;
let encode: (text: string) => number[];
let server: LlmServer;
let identity: ModelIdentity;
let records: LedgerRecord[];
let trajectory: Trajectory;

/** A rollout of two turns, sampled from the tiny model behind the wire format of vLLM. */
before(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'rollouts-verify-'));
  const tokenizer = await tokenizerFolder('smollm2', folder);
  const { codec } = await readTokenizerFolder(tokenizer);
  const known = new Map<string, number[]>();
  for (const text of PROBE) known.set(text, await codec.tokenize(text, { parseSpecial: true }, NEVER));
  encode = (text) => known.get(text) ?? [];
  fake = await fakeLlm('vllm', { encode });
  server = { url: fake.url, dialect: 'vllm', policyVersion: 3, tokenizer };
  const llm = makeDialect('vllm', fake.url);
  ({ identity } = await openModel(server, llm, NEVER));
  const promptIds = [5, 6, 7];
  const common = { policyVersion: 3, text: '', calls: [], server: fake.url, startedAt: '', ms: 1 };
  records = [{ kind: 'begin', promptIds, messages: [], tools: [], model: identity }];
  const ids = [...promptIds];
  for (const turn of [0, 1]) {
    const request = { promptIds: ids, maxTokens: 6, temperature: 1, topP: 1, seed: turn };
    const { ids: sampled, logprobs, finish } = await llm.generate(request, NEVER);
    const promptLength = ids.length;
    records.push({ kind: 'sampled', turn, promptLength, ids: sampled, logprobs, finish, ...common });
    records.push({ kind: 'observed', turn, results: [], messages: [], deltaIds: [3, 4] });
    ids.push(...sampled, 3, 4);
  }
  await llm.close();
  const request = RolloutRequest.parse({
    rolloutId: 'batch:task:0',
    task: { handler: 'math', id: 'task', data: { question: 'q', answer: '1' } },
  });
  const context = { request, workflowRunId: 'run', attempt: 1, reward: null, metadata: {} };
  trajectory = assembleTrajectory(records, context);
});
after(async () => {
  await fake?.close();
  await rm(folder, { recursive: true });
});

/** Verifies a file of these sequences. */
async function verify(
  sequences: readonly Trajectory[],
  options: Partial<VerifyOptions> = {},
  servers: readonly LlmServer[] = [server],
) {
  const file = path.join(folder, 'out.jsonl');
  await writeFile(file, sequences.map((sequence) => `${JSON.stringify(sequence)}\n`).join(''));
  const config = loadConfig({ env: {}, root: folder, flags: { llm: { servers: [...servers] } } });
  let result: unknown;
  let text = '';
  const output = {
    json: true,
    note: () => {},
    result: (value: unknown, words: () => string) => {
      result = value;
      text = words();
    },
  };
  const code = await verifyCommand(config, file, { rescore: false, tokens: 100, ...options }, output);
  const { problems, ledgers, rescored } = result as {
    problems: { line: number; problem: string }[];
    ledgers: number;
    rescored: {
      tokens: number;
      largest: number;
      at: { position: number };
      servers: { server: string; tokens: number; largest: number }[];
    } | null;
  };
  return { code, problems, ledgers, rescored, text };
}

/** The sequence with one log-probability off by so much, its checksum made to fit. */
function off(by: number): Trajectory {
  const copy = structuredClone(trajectory);
  const last = copy.loss_mask.lastIndexOf(1);
  copy.logprobs[last] = (copy.logprobs[last] as number) - by;
  copy.checksum = checksumOf(copy);
  return copy;
}

test('a file that is as it was written is proven, and its tokens score as they were sampled', async () => {
  const { code, problems, rescored, text } = await verify([trajectory], { rescore: true });
  assert.equal(code, 0, text);
  assert.deepEqual(problems, []);
  assert.equal(rescored?.tokens, trajectory.loss_mask.filter((mask) => mask === 1).length);
  assert.ok(rescored.largest < 1e-9);
  assert.match(text, /1 sequences, 0 problems/);
});

test('the largest difference is named, and is a problem beyond the tolerance', async () => {
  const { code, rescored } = await verify([off(0.25)], { rescore: true });
  assert.equal(code, 0);
  assert.ok(Math.abs((rescored?.largest ?? 0) - 0.25) < 1e-9);
  assert.equal(rescored?.at.position, trajectory.loss_mask.lastIndexOf(1));
  const strict = await verify([off(0.25)], { rescore: true, tolerance: 0.1 });
  assert.equal(strict.code, 1);
  assert.match(strict.problems[0]?.problem ?? '', /more than 0.1/);
});

test('of several servers each scores every sequence, which counts where it fits best', async (t) => {
  const other = await fakeLlm('vllm', { encode, otherBy: 0.5 });
  t.after(() => other.close());
  const servers = [{ ...server, url: other.url }, server];
  const { code, rescored, text } = await verify([trajectory], { rescore: true, tolerance: 0.1 }, servers);
  assert.equal(code, 0, text);
  assert.ok((rescored?.largest ?? 1) < 1e-9);
  assert.deepEqual(
    rescored?.servers.map(({ server: url, largest }) => [url, Math.round(largest * 1e6) / 1e6]),
    [
      [other.url, 0.5],
      [server.url, 0],
    ],
  );
  assert.match(text, new RegExp(`all of them on ${other.url}: log-probabilities differ by at most 0.500`));
  const alone = await verify([trajectory], { rescore: true, tolerance: 0.1 }, servers.slice(0, 1));
  assert.match(alone.problems[0]?.problem ?? '', /more than 0.1/);
});

test('a ledger in the store proves the order in which tokens came', async () => {
  const store = new TrajectoryStore(path.join(folder, '.rollouts', 'store'));
  await store.putLedger({ rolloutId: 'batch:task:0', workflowRunId: 'run', attempt: 1 }, records);
  const good = await verify([trajectory]);
  assert.deepEqual([good.code, good.ledgers], [0, 1]);
  const bad = await verify([off(0.25)]);
  assert.equal(bad.code, 1);
  assert.deepEqual(
    bad.problems.map(({ problem }) => problem),
    ['logprobs differ from what its ledger recorded'],
  );
});

test('each bad line is named; a sequence that is there twice and one of another model are bad', async () => {
  const broken = { ...trajectory, rollout_id: 'other' };
  const { code, problems } = await verify([trajectory, broken, trajectory]);
  assert.equal(code, 1);
  assert.deepEqual(
    problems.map(({ line, problem }) => `${line} ${problem.slice(0, 20)}`),
    ['2 does not match its c', '3 is in the file twice'],
  );
  const foreign = structuredClone(trajectory);
  foreign.rollout_id = 'foreign';
  foreign.model.tokenizer_hash = 'sha256:0';
  foreign.checksum = checksumOf(foreign);
  const found = await verify([foreign], { rescore: true });
  assert.match(found.problems[0]?.problem ?? '', /whose tokenizer is not that of/);
});

test('a server that says nothing is waited for as long as it may keep requests waiting', {
  timeout: 30_000,
}, async (t) => {
  const silent = await fakeServer(() => {});
  t.after(() => silent.close());
  const servers = [{ ...server, url: silent.url }];
  const llm = { servers, firstByteSeconds: 0.05 };
  const config = loadConfig({ env: {}, root: folder, flags: { llm } });
  const file = path.join(folder, 'silent.jsonl');
  await writeFile(file, '');
  const output = { json: true, note: () => {}, result: () => {} };
  await assert.rejects(verifyCommand(config, file, { rescore: true, tokens: 1 }, output), {
    ...{ type: 'LlmUnreachable', message: /HEADERS_TIMEOUT/ },
  });
});

test('a file that is not there is refused', async () => {
  const config = loadConfig({ env: {}, root: folder });
  const output = { json: true, note: () => {}, result: () => {} };
  await assert.rejects(verifyCommand(config, '/nowhere', { rescore: false, tokens: 1 }, output), {
    type: 'InvalidRequest',
  });
});
