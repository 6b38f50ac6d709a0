/** Run by `npm run test:vllm`, against a real server; too big for every run of the tests. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { LlmHttp } from '../../activities/llm/http.ts';
import { openModel } from '../../activities/llm/model.ts';
import { sampledDistribution } from '../../activities/llm/sampling.ts';
import { VllmDialect } from '../../activities/llm/vllm.ts';
import type { GenerateRequest, LlmServer } from '../../contracts/llm.ts';
import { startPoolService } from '../pool/support.ts';
import { tokenizerFolder } from '../support/tokenizer-folders.ts';
import { type RealVllm, startVllm } from '../support/vllm.ts';

const NEVER = new AbortController().signal;
/** Between a token that is sampled and one that is read in a prompt, in float32. */
const TOLERANCE = 1e-3;

/** The first requests after a start take long, on a busy machine very long. */
const PATIENT = { firstByteMs: 300_000, idleMs: 120_000 };

let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'rollouts-vllm-'));
});
after(() => rm(folder, { recursive: true }));

/** The server's own distribution of the token after a prompt, at temperature 1. */
async function distribution(url: string, prompt: readonly number[]) {
  const body = { model: 'smol', prompt, max_tokens: 1, temperature: 1, logprobs: 49_152, top_k: 0 };
  const http = new LlmHttp(url);
  const answer = (await http.json(
    '/v1/completions',
    { ...body, return_tokens_as_token_ids: true },
    NEVER,
  )) as {
    choices: { logprobs: { top_logprobs: Record<string, number>[] } }[];
  };
  await http.close();
  const top = answer.choices[0]?.logprobs.top_logprobs[0] ?? {};
  return Object.entries(top).map(([name, logprob]) => ({ id: Number(name.split(':')[1]), logprob }));
}

async function assertScoresAgain(llm: VllmDialect, sent: GenerateRequest): Promise<number[]> {
  const { ids, logprobs } = await llm.generate(sent, NEVER);
  const scores = await llm.score([...sent.promptIds, ...ids], sent.promptIds.length, sent, NEVER);
  assert.equal(scores?.length, ids.length);
  for (const [at, score] of (scores ?? []).entries()) {
    assert.ok(Math.abs(score - (logprobs[at] as number)) < TOLERANCE, `${score} against ${logprobs[at]}`);
  }
  return ids;
}

describe('with processed log-probabilities and --enable-scale-out', () => {
  let server: RealVllm;
  let llm: VllmDialect;
  let promptIds: number[];
  let stopIds: readonly number[];
  const entry = (): LlmServer => ({
    url: server.url,
    dialect: 'vllm',
    policyVersion: 0,
    tokenizer: server.model,
  });

  before(async () => {
    const flags = ['--enable-scale-out', '--logprobs-mode', 'processed_logprobs', '--max-logprobs', '-1'];
    server = await startVllm(folder, flags);
    llm = new VllmDialect(server.url, PATIENT);
    const { renderer } = await openModel(entry(), llm, NEVER);
    stopIds = renderer.stopIds;
    promptIds = await renderer.initial([{ role: 'user', content: 'Name 3 fruits.' }], NEVER);
  });
  after(async () => {
    await llm?.close();
    await server?.stop();
  });
  const request = (more: Partial<GenerateRequest> = {}): GenerateRequest => ({
    promptIds,
    maxTokens: 24,
    temperature: 1,
    topP: 1,
    seed: 7,
    stopIds,
    ...more,
  });

  test('the folder’s tokenizer is the server’s; another one is refused', async () => {
    const model = await openModel(entry(), llm, NEVER);
    assert.equal(model.contextTokens, 512);
    assert.equal(model.identity.name, 'smol');
    const other = { ...entry(), tokenizer: await tokenizerFolder('qwen3', folder) };
    await assert.rejects(openModel(other, llm, NEVER), { type: 'LlmUnsuitable', message: /is not that of/ });
  });

  test('sampled tokens score as they were sampled, with the version of the weights', async () => {
    await assertScoresAgain(llm, request());
    const { ids, versions } = await llm.generate(request(), NEVER);
    assert.deepEqual(versions, [{ version: 'default', start: 0, end: ids.length }]);
  });

  test('log-probabilities are those of temperature and top-p', async () => {
    for (const settings of [{ temperature: 0.6 }, { temperature: 1.3, topP: 0.8 }]) {
      const sent = request({ ...settings, maxTokens: 4 });
      const { ids, logprobs } = await llm.generate(sent, NEVER);
      for (const [at, id] of ids.entries()) {
        const own = await distribution(server.url, [...promptIds, ...ids.slice(0, at)]);
        const expected = sampledDistribution(own, sent).find((candidate) => candidate.id === id);
        const difference = Math.abs((expected?.logprob ?? Number.NaN) - (logprobs[at] as number));
        assert.ok(difference < TOLERANCE, `${logprobs[at]} against ${expected?.logprob}`);
      }
    }
  });

  test('a turn ends with its end token, or as a length without', async () => {
    const whole = await llm.generate(request({ maxTokens: 400, temperature: 0 }), NEVER);
    assert.equal(whole.finish, 'stop');
    assert.equal(whole.ids.at(-1), stopIds[0]);
    const cut = await llm.generate(request({ maxTokens: 3, temperature: 0 }), NEVER);
    assert.equal(cut.finish, 'length');
    assert.deepEqual(cut.ids, whole.ids.slice(0, 3));
  });

  test('an abort keeps the tokens received and ends the work', async () => {
    const controller = new AbortController();
    const told: number[] = [];
    const { ids, finish } = await llm.generate(
      request({ maxTokens: 400, stopIds: [] }),
      controller.signal,
      (more) => {
        told.push(...more);
        if (told.length >= 5) controller.abort();
      },
    );
    assert.equal(finish, 'abort');
    assert.deepEqual(ids, told);
    while ((await llm.load(NEVER)).running > 0);
  });

  test('too long a prompt is refused in the server’s own words', async () => {
    const long = Array.from({ length: 600 }, () => 504);
    await assert.rejects(llm.generate(request({ promptIds: long }), NEVER), {
      type: 'LlmRejected',
      message: /400: .*maximum model length/,
    });
  });

  test('a turn goes on after a pause that aborted it, and across a swap with a version for each token', async () => {
    let ended = false;
    const paused = llm.generate(request({ maxTokens: 300, stopIds: [] }), NEVER, () => {
      if (!ended) void llm.control.pause('abort', NEVER);
      ended = true;
    });
    const part = await paused;
    assert.equal(part.finish, 'abort');
    assert.ok(part.ids.length > 0);
    await llm.control.resume(NEVER);
    await assertScoresAgain(llm, request({ promptIds: [...promptIds, ...part.ids], maxTokens: 4 }));

    let swapping: Promise<void> | undefined;
    const swapped = await llm.generate(request({ maxTokens: 60, stopIds: [] }), NEVER, () => {
      swapping ??= (async () => {
        await llm.control.pause('abort', NEVER);
        await llm.control.loadWeights({ folder: server.other, version: 'step-1' }, NEVER);
        await llm.control.resume(NEVER);
      })();
    });
    await swapping;
    assert.deepEqual(swapped.versions, [{ version: 'default', start: 0, end: swapped.ids.length }]);
    assert.equal(await llm.control.version(NEVER), 'step-1');
    const ids = [...promptIds, ...swapped.ids];
    const after = await llm.generate(request({ promptIds: ids, maxTokens: 8 }), NEVER);
    assert.deepEqual(after.versions, [{ version: 'step-1', start: 0, end: after.ids.length }]);
    await assertScoresAgain(llm, request({ promptIds: ids, maxTokens: 8 }));
    // The old weights' tokens do not score so under the new ones.
    const scores = await llm.score(ids, promptIds.length, request(), NEVER);
    const differences = swapped.logprobs.map((logprob, at) => Math.abs(logprob - (scores?.[at] ?? 0)));
    assert.ok(Math.max(...differences) > 0.05, `the weights are the old ones: ${differences}`);
  });
});

describe('with the model’s own log-probabilities and without --enable-scale-out', () => {
  let server: RealVllm;
  let llm: VllmDialect;
  before(async () => {
    server = await startVllm(folder, []);
    llm = new VllmDialect(server.url, PATIENT);
  });
  after(async () => {
    await llm?.close();
    await server?.stop();
  });
  const request = (more: Partial<GenerateRequest> = {}): GenerateRequest => ({
    promptIds: [504, 3575, 282, 4649],
    maxTokens: 8,
    temperature: 1,
    topP: 1,
    seed: 7,
    ...more,
  });

  test('completions give the same tokens and log-probabilities, without versions', async () => {
    await assertScoresAgain(llm, request());
    await assertScoresAgain(llm, request({ temperature: 0 }));
    assert.equal((await llm.generate(request(), NEVER)).versions, undefined);
  });

  test('a temperature or top-p that the log-probabilities would leave out is refused', async () => {
    await assert.rejects(llm.generate(request({ temperature: 0.6 }), NEVER), {
      type: 'LlmUnsuitable',
      message: /leave out the temperature: start it with --logprobs-mode processed_logprobs/,
    });
    await assert.rejects(llm.generate(request({ topP: 0.9 }), NEVER), {
      type: 'LlmUnsuitable',
      message: /leave out top-p/,
    });
  });
});

describe('in a pool', () => {
  test('its weights are swapped under a turn that goes on, aborted and in flight, each token with its version', async (t) => {
    const flags = ['--enable-scale-out', '--logprobs-mode', 'processed_logprobs'];
    const server = await startVllm(folder, flags);
    const service = await startPoolService();
    t.after(async () => {
      await service.stop();
      await server.stop();
    });
    const client = await service.client(t, 'vllm');
    const { view } = await service.join(t, 'vllm');
    const entry: LlmServer = { url: server.url, dialect: 'vllm', policyVersion: 0, tokenizer: server.model };
    const { state } = await client.pool.add({ server: entry });
    const [member] = state.members;
    assert.deepEqual(
      [member?.facts.control, member?.facts.tellsVersions, member?.facts.version],
      [true, true, 'default'],
    );
    const policy = await view.open('r', { signal: NEVER });
    const promptIds = await policy.renderPrompt([
      { role: 'user', content: 'Count from 1 to 100, in words.' },
    ]);
    const versions: number[] = [];
    /** The turn goes on until a swap has been under it. */
    const sampleDuring = async (swap: () => Promise<unknown>) => {
      const ids: number[] = [];
      let swapping: Promise<unknown> | undefined;
      const most = 300;
      while (ids.length < most) {
        const request = {
          promptIds: [...promptIds, ...ids],
          maxTokens: most - ids.length,
          temperature: 1,
          topP: 1,
        };
        const sampling = policy.generate(request, NEVER);
        swapping ??= swap();
        const sampled = await sampling;
        ids.push(...sampled.ids);
        for (const { version, start, end } of sampled.versions)
          versions.push(...Array(end - start).fill(version));
        if (sampled.finish !== 'abort') break;
      }
      await swapping;
      assert.equal(versions.length, ids.length);
      return [...new Set(versions.splice(0))];
    };
    const load = (mode: 'abort' | 'inFlight', version: number) => async () => {
      while (((await new VllmDialect(server.url).load(NEVER)).running ?? 0) === 0);
      const folderOf = version % 2 === 1 ? server.other : server.model;
      const { failed } = await client.pool.swap({ mode, version, folder: folderOf });
      assert.deepEqual(failed, []);
    };
    assert.deepEqual(await sampleDuring(load('abort', 1)), [0, 1]);
    assert.deepEqual(await sampleDuring(load('inFlight', 2)), [1, 2]);
    const broken = await client.pool.swap({ mode: 'abort', version: 3, folder: '/nowhere' });
    assert.deepEqual(
      broken.failed.map(({ url }) => url),
      [server.url],
    );
    assert.equal(
      (await client.pool.swap({ mode: 'abort', version: 3, folder: server.other })).failed.length,
      0,
    );
    assert.deepEqual(await sampleDuring(async () => {}), [3]);
  });
});
