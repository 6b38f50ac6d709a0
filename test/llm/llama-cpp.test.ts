import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import type { LlamaCppDialect } from '../../activities/llm/llama-cpp.ts';
import { sampledDistribution } from '../../activities/llm/sampling.ts';
import type { GenerateRequest } from '../../contracts/llm.ts';
import { embedded, NEVER, slotsBusy } from './embedded.ts';

/**
 * Re-scoring reads a prefix in one batch where sampling read it token by token, among other requests. Largest
 * difference seen: 4.6e-7 of 170 tokens, with 4 requests at once or alone; processors with other kernels may
 * round more coarsely.
 */
const TOLERANCE = 1e-4;

let llm: LlamaCppDialect;
let close: () => Promise<void>;

before(async () => {
  ({ dialect: llm, close } = await embedded());
});
after(() => close());

const encode = (text: string) => llm.tokenize(text, { parseSpecial: true }, NEVER);
const chat = (user: string) => encode(`<|im_start|>user\n${user}<|im_end|>\n<|im_start|>assistant\n`);
const request = (promptIds: number[], more: Partial<GenerateRequest> = {}): GenerateRequest => ({
  promptIds,
  maxTokens: 48,
  temperature: 1,
  topP: 1,
  seed: 11,
  ...more,
});

async function assertRescores(sent: GenerateRequest, tolerance: number): Promise<void> {
  const { ids, logprobs } = await llm.generate(sent, NEVER);
  assert.ok(ids.length > 0);
  for (const [at, id] of ids.entries()) {
    const vocabulary = await llm.distribution([...sent.promptIds, ...ids.slice(0, at)], NEVER);
    const expected = sampledDistribution(vocabulary, sent).find((candidate) => candidate.id === id);
    assert.ok(expected, `token ${id} at ${at} is outside the distribution`);
    const difference = Math.abs(expected.logprob - (logprobs[at] ?? Number.NaN));
    assert.ok(difference <= tolerance, `token ${id} at ${at}: ${logprobs[at]} against ${expected.logprob}`);
  }
}

test('describes the model', async () => {
  const described = await llm.describe(NEVER);
  assert.equal(described.model, 'SmolLM2-135M-Instruct.Q4_1');
  assert.equal(described.contextTokens, 2048);
  assert.equal(described.vocabularySize, 49_152);
  assert.equal(described.format?.eosText, '<|im_end|>');
});

test('a turn ends with the sampled end-of-turn token, which has a log-probability', async () => {
  const { ids, logprobs, finish } = await llm.generate(
    request(await chat('Say hi.'), { temperature: 0 }),
    NEVER,
  );
  assert.equal(finish, 'stop');
  assert.deepEqual([ids.at(-1)], await encode('<|im_end|>'));
  assert.equal(logprobs.length, ids.length);
  assert.ok(logprobs.every((logprob) => logprob < 0 && logprob > -20));
  assert.equal(ids.filter((id) => id === ids.at(-1)).length, 1);
});

test('a token limit ends a turn without that token', async () => {
  const { ids, finish } = await llm.generate(
    request(await chat('Say hi.'), { maxTokens: 3, temperature: 0 }),
    NEVER,
  );
  assert.equal(finish, 'length');
  assert.equal(ids.length, 3);
});

for (const [temperature, topP] of [
  [1, 1],
  [0.6, 1],
  [1.4, 0.9],
] as const) {
  test(`log-probabilities are those of the distribution sampled from (T ${temperature}, top-p ${topP})`, async () => {
    const promptIds = await chat('Name a fruit.');
    await assertRescores(request(promptIds, { temperature, topP, maxTokens: 8 }), TOLERANCE);
  });
}

test('tokens that end within a character are neither lost nor guessed', async () => {
  // A model that has seen a row of these characters, two or three tokens each, goes on with them.
  const row = '🦙🧪🜁🦙🧪🜁🦙🧪🜁';
  const promptIds = [...(await chat(`Repeat: ${row}`)), ...(await encode('🦙🧪🜁🦙'))];
  const sent = request(promptIds, { maxTokens: 7, temperature: 0.5 });
  await assertRescores(sent, TOLERANCE);
  const { ids } = await llm.generate(sent, NEVER);
  const text = await llm.detokenize(ids, NEVER);
  assert.ok(ids.length > [...text].length, `"${text}" has no character of several tokens`);
  assert.match(text, /^[🦙🧪🜁]{2}/u);
});

test('an abort keeps the tokens received and frees the slot', async () => {
  const controller = new AbortController();
  const told: number[] = [];
  const { ids, logprobs, finish } = await llm.generate(
    request(await chat('Write a long story about a lighthouse.'), { maxTokens: 1500 }),
    controller.signal,
    (more) => {
      told.push(...more);
      if (told.length === 5) controller.abort();
    },
  );
  assert.equal(finish, 'abort');
  assert.deepEqual(ids, told);
  assert.ok(ids.length >= 5 && ids.length < 1500);
  assert.equal(logprobs.length, ids.length);
  while (await slotsBusy(llm.url));
});

test('an abort while the prompt is read ends the reading', async () => {
  const readTokens = async () => {
    const metrics = await (await fetch(`${llm.url}/metrics`)).text();
    return Number(/^llamacpp:prompt_tokens_total (\d+)/m.exec(metrics)?.[1]);
  };
  const before = await readTokens();
  const controller = new AbortController();
  const promptIds = Array.from({ length: 1900 }, (_, at) => 1000 + at);
  const generating = llm.generate(request(promptIds), controller.signal);
  while (!(await slotsBusy(llm.url)));
  controller.abort();
  assert.deepEqual(await generating, { ids: [], logprobs: [], finish: 'abort' });
  while (await slotsBusy(llm.url));
  assert.ok((await readTokens()) - before < 1900, 'the whole prompt was read');
});
