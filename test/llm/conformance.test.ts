import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import type { LlmDialect } from '../../activities/llm/dialect.ts';
import { makeDialect } from '../../activities/llm/dialects.ts';
import { sampledDistribution } from '../../activities/llm/sampling.ts';
import { type FailureType, RolloutError } from '../../contracts/failures.ts';
import { type GenerateRequest, LlmDialectName } from '../../contracts/llm.ts';
import { embedded, NEVER, slotsBusy } from './embedded.ts';
import { type FakeKind, KINDS } from './fakes/answers.ts';
import { type FakeLlm, type FakeOptions, fakeLlm } from './fakes/fake-llm.ts';
import { distributionAfter, END, sampleTurn } from './fakes/tiny-model.ts';

const dialectOf = (kind: FakeKind) => LlmDialectName.parse(kind.replace(/-(completions|incremental)$/, ''));
const streams = (kind: FakeKind) => kind !== 'prorl';

/** Temperature 1 and a seed with which the turn ends by itself after some tokens. */
const REQUEST: GenerateRequest = {
  promptIds: [5, 6, 7],
  maxTokens: 40,
  temperature: 1,
  topP: 1,
  seed: 4,
  stopIds: [END],
};
const turnOf = (request: GenerateRequest) =>
  sampleTurn(request.promptIds, { seed: 0, stopIds: [END], ...request });

async function withFake(
  kind: FakeKind,
  options: FakeOptions,
  work: (llm: LlmDialect, fake: FakeLlm) => Promise<void>,
): Promise<void> {
  const fake = await fakeLlm(kind, options);
  const llm = makeDialect(dialectOf(kind), fake.url);
  try {
    await work(llm, fake);
  } finally {
    await llm.close();
    await fake.close();
  }
}

function failure(type: FailureType, words: RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof RolloutError, String(error));
    assert.equal(error.type, type, error.message);
    assert.match(error.message, words);
    return true;
  };
}

test('the tiny model is what it is taken for', () => {
  const turn = turnOf(REQUEST);
  assert.equal(turn.at(-1)?.id, END);
  assert.ok(turn.length > 4 && turn.length < REQUEST.maxTokens);
  const mass = distributionAfter(5).reduce((sum, { logprob }) => sum + Math.exp(logprob), 0);
  assert.ok(Math.abs(mass - 1) < 1e-9);
});

for (const kind of KINDS) {
  test(`${kind}: a turn comes as it was sampled, end token and log-probabilities included`, () =>
    withFake(kind, {}, async (llm, fake) => {
      const turn = turnOf(REQUEST);
      const told: number[] = [];
      const generated = await llm.generate(REQUEST, NEVER, (ids, logprobs) => {
        assert.equal(ids.length, logprobs.length);
        told.push(...ids);
      });
      assert.deepEqual(
        generated.ids,
        turn.map(({ id }) => id),
      );
      assert.deepEqual(
        generated.logprobs,
        turn.map(({ logprob }) => logprob),
      );
      assert.equal(generated.finish, 'stop');
      assert.deepEqual(told, generated.ids);
      if (kind === 'vllm' || kind.startsWith('sglang')) {
        assert.deepEqual(generated.versions, [{ version: 'step-7', start: 0, end: turn.length }]);
      }
      const sent = JSON.stringify(fake.seen.at(-1)?.body);
      assert.match(sent, /\[5,6,7\]/);
      assert.match(sent, /"temperature":1,"top_p":1/);
      assert.match(sent, /"(sampling_)?seed":4/);
      assert.match(sent, /"stop_token_ids":\[2\]/);
    }));

  test(`${kind}: a token limit ends a turn as a length`, () =>
    withFake(kind, {}, async (llm) => {
      const request = { ...REQUEST, maxTokens: 3 };
      const { ids, finish } = await llm.generate(request, NEVER);
      assert.equal(finish, 'length');
      assert.deepEqual(
        ids,
        turnOf(request).map(({ id }) => id),
      );
    }));

  test(`${kind}: greedy, the log-probabilities are the model's own`, () =>
    withFake(kind, { raw: true }, async (llm) => {
      const request = { ...REQUEST, temperature: 0, maxTokens: 6 };
      const { logprobs } = await llm.generate(request, NEVER);
      assert.deepEqual(
        logprobs,
        turnOf(request).map(({ raw }) => raw),
      );
    }));

  test(`${kind}: log-probabilities must be of the distribution that was sampled from`, async () => {
    for (const settings of [{ temperature: 0.6 }, { topP: 0.8 }]) {
      const request = { ...REQUEST, ...settings };
      await withFake(kind, {}, async (llm) => {
        const { ids, logprobs } = await llm.generate(request, NEVER);
        let last = REQUEST.promptIds.at(-1) as number;
        for (const [at, id] of ids.entries()) {
          const expected = sampledDistribution(distributionAfter(last), request).find((one) => one.id === id);
          assert.equal(logprobs[at], expected?.logprob);
          last = id;
        }
      });
      await withFake(kind, { raw: true }, (llm) =>
        assert.rejects(llm.generate(request, NEVER), failure('LlmUnsuitable', /leave out (the temp|top-p)/)),
      );
    }
  });

  test(`${kind}: log-probabilities that cannot be trained on are refused, never replaced`, async () => {
    const spoils: [FakeOptions['spoil'], RegExp][] = [
      [() => null, /tokens with 0 log-probabilities|1 tokens with 0|logprob/],
      [(logprobs) => logprobs.map(() => null), /log-probability null/],
      [(logprobs) => logprobs.map(() => 'NaN'), /log-probability NaN/],
      [(logprobs) => logprobs.map(() => -9999), /log-probability -9999/],
      [(logprobs) => logprobs.map(() => 0.5), /log-probability 0.5/],
      [(logprobs) => logprobs.slice(1), /tokens with \d+ log-probabilities|other tokens/],
    ];
    for (const [spoil, words] of spoils) {
      const told: number[] = [];
      await withFake(kind, { ...(spoil ? { spoil } : {}) }, (llm) =>
        assert.rejects(
          llm.generate(REQUEST, NEVER, (ids) => told.push(...ids)),
          failure('LlmInvalidAnswer', words),
        ),
      );
      assert.deepEqual(told, []);
    }
  });

  test(`${kind}: an abort keeps the tokens received and reaches the server`, () =>
    withFake(kind, { standAfter: 4 }, async (llm, fake) => {
      const controller = new AbortController();
      const told: number[] = [];
      const generating = llm.generate(REQUEST, controller.signal, (ids) => {
        told.push(...ids);
        if (told.length === 4) controller.abort();
      });
      if (!streams(kind)) {
        while (fake.seen.length === 0) await new Promise((resolve) => setImmediate(resolve));
        controller.abort();
      }
      const { ids, logprobs, finish } = await generating;
      assert.equal(finish, 'abort');
      assert.deepEqual(
        ids,
        streams(kind)
          ? turnOf(REQUEST)
              .slice(0, 4)
              .map(({ id }) => id)
          : [],
      );
      assert.equal(logprobs.length, ids.length);
      await fake.left;
      if (kind.startsWith('sglang')) {
        const [generate, abort] = fake.seen.slice(-2);
        assert.equal(abort?.path, '/abort_request');
        assert.equal(abort.body.rid, generate?.body.rid);
      }
      const again = await llm.generate(REQUEST, controller.signal);
      assert.deepEqual(again, { ids: [], logprobs: [], finish: 'abort' });
    }));

  if (streams(kind)) {
    test(`${kind}: a stream that is cut keeps what was told and can be tried again`, () =>
      withFake(kind, { cutAfter: 3 }, async (llm) => {
        const told: number[] = [];
        await assert.rejects(
          llm.generate(REQUEST, NEVER, (ids) => told.push(...ids)),
          failure('LlmUnreachable', /generate|completions/),
        );
        assert.deepEqual(
          told,
          turnOf(REQUEST)
            .slice(0, 3)
            .map(({ id }) => id),
        );
      }));
  }

  test(`${kind}: a refusal carries the server's own words`, async () => {
    for (const [status, type] of [
      [400, 'LlmRejected'],
      [429, 'LlmUnreachable'],
      [503, 'LlmUnreachable'],
    ] as const) {
      await withFake(kind, { refuse: { status, words: 'its own words' } }, (llm) =>
        assert.rejects(
          llm.generate(REQUEST, NEVER),
          failure(type, new RegExp(`answered ${status}: its own words`)),
        ),
      );
    }
  });

  test(`${kind}: says what it can of model, context, load and health`, () =>
    withFake(kind, {}, async (llm, fake) => {
      await llm.health(NEVER);
      const { model, contextTokens } = await llm.describe(NEVER);
      assert.equal(contextTokens, kind === 'prorl' || kind === 'tensorrt-llm' ? null : 64);
      assert.equal(model, kind === 'prorl' ? fake.url : 'tiny');
      assert.deepEqual(await llm.load(NEVER), kind === 'prorl' ? null : { running: 2, waiting: 3 });
      const encoded = await llm.encode('az', NEVER);
      assert.deepEqual(encoded, kind === 'prorl' || kind === 'tensorrt-llm' ? null : [1, 2]);
      await fake.close();
      await assert.rejects(llm.health(NEVER), failure('LlmUnreachable', /ECONNREFUSED|closed|ECONNRESET/));
    }));

  test(`${kind}: tokens are scored again as they were sampled, where the server can`, () =>
    withFake(kind, {}, async (llm) => {
      const { ids, logprobs } = await llm.generate(REQUEST, NEVER);
      const whole = [...REQUEST.promptIds, ...ids];
      const scores = await llm.score(whole, REQUEST.promptIds.length, REQUEST, NEVER);
      if (kind === 'prorl' || kind === 'tensorrt-llm') {
        assert.equal(scores, null);
        return;
      }
      assert.equal(scores?.length, ids.length);
      for (const [at, score] of (scores ?? []).entries()) {
        assert.ok(Math.abs(score - (logprobs[at] as number)) < 1e-12);
      }
      assert.equal(await llm.score(whole, 3, { temperature: 0.5, topP: 1 }, NEVER), null);
    }));

  test(`${kind}: weights are swapped by the server's own calls, where it has some`, () =>
    withFake(kind, {}, async (llm, fake) => {
      if (kind === 'prorl' || kind === 'tensorrt-llm') {
        assert.equal(llm.control, null);
        return;
      }
      const control = llm.control;
      assert.ok(control);
      await control.pause('keep', NEVER);
      await control.pause('abort', NEVER);
      await control.loadWeights({ folder: '/weights/7', version: 'step-7' }, NEVER);
      await control.resume(NEVER);
      assert.equal(await control.version(NEVER), 'step-7');
      const calls = fake.seen.map(({ path, body }) => `${path} ${JSON.stringify(body)}`);
      const expected = kind.startsWith('vllm')
        ? [
            '/pause?mode=keep {}',
            '/pause?mode=abort {}',
            '/collective_rpc {"method":"reload_weights","kwargs":{"weights_path":"/weights/7"}}',
            '/update_weight_version {"new_version":"step-7"}',
            '/reset_prefix_cache {}',
            '/resume {}',
            '/weight_info {}',
          ]
        : [
            '/pause_generation {"mode":"retract"}',
            '/pause_generation {"mode":"abort"}',
            '/update_weights_from_disk {"model_path":"/weights/7","weight_version":"step-7"}',
            '/continue_generation {}',
            '/model_info {}',
          ];
      assert.deepEqual(calls, expected);
    }));
}

test('sglang: a request that is refused in the stream is no abort', async () => {
  const finish_reason = { type: 'abort', message: 'too long', status_code: 400, err_type: 'BadRequestError' };
  const alter = (event: Record<string, unknown>) => ({
    ...event,
    meta_info: { ...(event.meta_info as object), finish_reason },
  });
  await withFake('sglang', { alter }, (llm) =>
    assert.rejects(llm.generate(REQUEST, NEVER), failure('LlmRejected', /400: too long/)),
  );
});

test('an error in the middle of a stream is what its code says', async () => {
  for (const kind of KINDS.filter(streams)) {
    for (const [code, type] of [
      [400, 'LlmRejected'],
      ['overloaded', 'LlmUnreachable'],
    ] as const) {
      const alter = (event: object, last: boolean) => (last ? { error: { message: 'words', code } } : event);
      await withFake(kind, { alter }, (llm) =>
        assert.rejects(llm.generate(REQUEST, NEVER), failure(type, /words/)),
      );
    }
  }
});

test('a turn without the token that ended it is refused', async () => {
  const cutting = {
    sglang: (event: Record<string, unknown>) => {
      const meta = event.meta_info as { completion_tokens: number; output_token_logprobs: unknown[] };
      return {
        ...event,
        output_ids: (event.output_ids as number[]).slice(0, -1),
        meta_info: {
          ...meta,
          completion_tokens: meta.completion_tokens - 1,
          output_token_logprobs: meta.output_token_logprobs.slice(0, -1),
        },
      };
    },
    'tensorrt-llm': (event: Record<string, unknown>) => {
      const [choice] = event.choices as object[];
      return { ...event, choices: [{ ...choice, token_ids: [], logprobs: null }] };
    },
  };
  for (const kind of ['sglang', 'tensorrt-llm'] as const) {
    const alter = (event: Record<string, unknown>, last: boolean) => (last ? cutting[kind](event) : event);
    await withFake(kind, { alter }, (llm) =>
      assert.rejects(llm.generate(REQUEST, NEVER), failure('LlmInvalidAnswer', /left it out|without giving/)),
    );
  }
});

test('a server of the kind that is not there is none', async () => {
  const fake = await fakeLlm('prorl');
  for (const name of ['vllm', 'sglang', 'tensorrt-llm'] as const) {
    const llm = makeDialect(name, fake.url);
    await assert.rejects(llm.describe(NEVER), failure('LlmRejected', /404: Not Found/));
    await llm.close();
  }
  await fake.close();
});

/** The real one keeps the same rules. */
let real: Awaited<ReturnType<typeof embedded>>;
before(async () => {
  real = await embedded({ contextTokens: 256, parallel: 1 });
});
after(() => real.close());

test('llama.cpp: says what it can of model, context, load and health', async () => {
  const { dialect } = real;
  await dialect.health(NEVER);
  assert.equal((await dialect.describe(NEVER)).contextTokens, 256);
  assert.equal(dialect.control, null);
  assert.deepEqual(await dialect.load(NEVER), { running: 0, waiting: 0 });
  const controller = new AbortController();
  const generating = dialect.generate({ ...REQUEST, maxTokens: 200 }, controller.signal);
  while (!(await slotsBusy(dialect.url)));
  assert.deepEqual(await dialect.load(NEVER), { running: 1, waiting: 0 });
  controller.abort();
  await generating;
  assert.deepEqual(await dialect.encode('<|im_end|>', NEVER), [2]);
});

test('llama.cpp: tokens are scored again as they were sampled', async () => {
  const { dialect } = real;
  const promptIds = await dialect.tokenize('Once upon a time', { parseSpecial: false }, NEVER);
  const request = { promptIds, maxTokens: 4, temperature: 0.7, topP: 0.9, seed: 3 };
  const { ids, logprobs } = await dialect.generate(request, NEVER);
  const scores = await dialect.score([...promptIds, ...ids], promptIds.length, request, NEVER);
  for (const [at, score] of scores.entries()) {
    assert.ok(Math.abs(score - (logprobs[at] as number)) < 1e-3, `${score} against ${logprobs[at]}`);
  }
});
