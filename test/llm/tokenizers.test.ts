import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { ChatRenderer } from '../../activities/llm/renderer.ts';
import { TokenTexts } from '../../activities/llm/token-texts.ts';
import { readTokenizerFolder, type TokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';
import { RolloutError } from '../../contracts/failures.ts';
import type { ToolSpec } from '../../contracts/tools.ts';
import type { ChatMessage } from '../../contracts/trajectory.ts';
import { viewOf } from '../support/pool.ts';
import { ORACLES, TOKENIZERS, type TokenizerName, tokenizerFolder } from '../support/tokenizer-folders.ts';
import { embedded, NEVER } from './embedded.ts';

/** What Python's transformers says; test/fixtures/tokenizers/make.py writes it. */
interface Oracle {
  readonly texts: readonly { text: string; ids: number[] }[];
  /** Special tokens read as text. */
  readonly plain: readonly { text: string; ids: number[] }[];
  readonly conversations: readonly {
    readonly messages: ChatMessage[];
    readonly tools: { function: ToolSpec }[] | null;
    readonly ids?: number[];
    readonly refused?: string;
  }[];
}

let scratch: string;
before(async () => {
  scratch = await mkdtemp(path.join(os.tmpdir(), 'rollouts-tokenizers-'));
});
after(() => rm(scratch, { recursive: true }));

const opened = new Map<TokenizerName, ReturnType<typeof read>>();
const openTokenizer = (name: TokenizerName) => {
  const there = opened.get(name) ?? read(name);
  opened.set(name, there);
  return there;
};

async function read(name: TokenizerName) {
  const [folder, oracle] = await Promise.all([
    tokenizerFolder(name, scratch).then(readTokenizerFolder),
    readFile(path.join(ORACLES, `${name}.json`), 'utf8').then((text) => JSON.parse(text) as Oracle),
  ]);
  const renderer = await ChatRenderer.create(folder, NEVER);
  const encode = (text: string, parseSpecial = true) => folder.codec.tokenize(text, { parseSpecial }, NEVER);
  return { folder, oracle, renderer, encode };
}

/** What a model would sample for an answer, as its template writes it. */
const SAMPLED: Record<TokenizerName, (answer: string) => string> = {
  qwen3: (answer) => `${answer}<|im_end|>`,
  llama3: (answer) => `${answer}<|eot_id|>`,
  gemma3: (answer) => `${answer}<end_of_turn>`,
  gptoss: (answer) => `<|channel|>final<|message|>${answer}<|return|>`,
  smollm2: (answer) => `${answer}<|im_end|>`,
};
/** Gemma and gpt-oss are told results of tools as the user's words. */
const TOOLS_AS_USER: readonly TokenizerName[] = ['gemma3', 'gptoss'];

for (const name of TOKENIZERS) {
  test(`${name}: ids are those of Python's transformers`, async () => {
    const { oracle, renderer, encode } = await openTokenizer(name);
    for (const { text, ids } of oracle.texts) assert.deepEqual(await encode(text), ids, JSON.stringify(text));
    for (const { text, ids } of oracle.plain) {
      assert.deepEqual(await encode(text, false), ids, JSON.stringify(text));
    }
    for (const { messages, tools, ids } of oracle.conversations) {
      if (!ids) continue;
      const specs = tools?.map((tool) => tool.function);
      // Only Qwen's template describes tools.
      if (specs && name !== 'qwen3') {
        const refusal = { type: 'LlmUnsuitable', message: /does not tell the model of tools/ };
        await assert.rejects(renderer.initial(messages, NEVER, specs), refusal);
      } else {
        assert.deepEqual(await renderer.initial(messages, NEVER, specs), ids);
      }
    }
  });

  test(`${name}: texts of its tokens, one by one, are the whole text`, async () => {
    const { oracle, folder } = await openTokenizer(name);
    const tokens = await TokenTexts.from(folder, NEVER);
    let shared = 0;
    for (const { text, ids } of oracle.texts) {
      const texts = await tokens.textsOf(ids, NEVER);
      assert.equal(texts.length, ids.length);
      assert.equal(texts.join(''), text);
      shared += texts.filter((each) => each === '').length;
    }
    assert.ok(shared > 0, 'some characters are several tokens');
  });

  test(`${name}: prompt, sampled turn and delta are what transformers makes of the whole`, async () => {
    const { oracle, renderer, encode } = await openTokenizer(name);
    let compared = 0;
    for (const { messages, ids } of oracle.conversations) {
      const [first, answer, ...rest] = messages;
      if (first?.role !== 'user' || answer?.role !== 'assistant') continue;
      const asUser = rest.some(({ role }) => role === 'tool') && TOOLS_AS_USER.includes(name);
      assert.equal(ids === undefined, asUser);
      const joined = oracle.conversations.find(({ messages: [, , more] }) =>
        more?.content.startsWith(`${rest[0]?.content}\n\n`),
      );
      const expected = asUser ? joined?.ids : ids;
      assert.ok(expected);
      const prompt = await renderer.initial([first], NEVER);
      const sampled = await encode(SAMPLED[name](answer.content));
      const delta = await renderer.delta(sampled, rest, NEVER);
      const whole = [...prompt, ...sampled, ...delta];
      // gpt-oss writes another end of turn once messages follow; what was sampled stands.
      const end = prompt.length + sampled.length - 1;
      if (name === 'gptoss') assert.notEqual(whole[end], expected[end]);
      assert.deepEqual(whole.with(end, expected[end] as number), expected);
      compared++;
    }
    assert.equal(compared, 3);
  });

  test(`${name}: no text from outside becomes a control token`, async () => {
    const { folder, renderer, encode } = await openTokenizer(name);
    const controls = folder.format.controlTokens as string[];
    const ids = new Set((await Promise.all(controls.map((text) => encode(text)))).flat());
    assert.equal(ids.size, controls.length);
    const forged = `x${controls.join(' y\n')}${controls.join('')}`;
    const count = (all: number[]) => all.filter((id) => ids.has(id)).length;
    const [harmless, attack] = await Promise.all(
      ['x', forged].map((content) => renderer.initial([{ role: 'user', content }], NEVER)),
    );
    assert.equal(count(attack as number[]), count(harmless as number[]));
    assert.ok((await folder.codec.detokenize(attack as number[], NEVER)).includes(forged));
    const [calm, hostile] = await Promise.all(
      ['x', forged].map((content) => renderer.delta([renderer.eosId], [{ role: 'tool', content }], NEVER)),
    );
    assert.equal(count(hostile as number[]), count(calm as number[]));
  });

  test(`${name}: a turn that was cut is closed by the template's own token`, async () => {
    const { folder, renderer, encode } = await openTokenizer(name);
    const messages: ChatMessage[] = [{ role: 'tool', content: 'x' }];
    const cut = await renderer.delta(await encode('half a'), messages, NEVER);
    const ended = await renderer.delta([renderer.eosId], messages, NEVER);
    assert.deepEqual(cut.slice(1), ended);
    assert.ok(renderer.ends(cut.slice(0, 1)));
    const text = await folder.codec.detokenize(cut, NEVER);
    assert.match(text, /^<(\|im_end\||\|eot_id\||end_of_turn|\|end\|)>/);
  });
}

test('an answer that begins with thoughts keeps them in every later prompt', async () => {
  const { renderer, encode } = await openTokenizer('qwen3');
  const sampled = await encode('<think>\nTwo and three.\n</think>\n\n5<|im_end|>');
  const delta = await renderer.delta(sampled, [{ role: 'user', content: 'Sure?' }], NEVER);
  assert.deepEqual(delta, await encode('\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n'));
  // In a prompt, the template would drop thoughts of earlier answers: it is refused, not followed.
  const example: ChatMessage[] = [
    { role: 'user', content: 'a' },
    { role: 'assistant', content: '<think>\nb\n</think>\n\nc' },
    { role: 'user', content: 'd' },
  ];
  await assert.rejects(renderer.initial(example, NEVER), { type: 'LlmUnsuitable' });
});

test('tokens that the template writes are control tokens, others added to the vocabulary are words', async () => {
  const { encode } = await openTokenizer('qwen3');
  assert.equal((await encode('<tool_response>')).length, 1);
  assert.ok((await encode('<tool_response>', false)).length > 1);
  assert.deepEqual(await encode('<|fim_prefix|>', false), await encode('<|fim_prefix|>'));
  const gemma = await openTokenizer('gemma3');
  assert.equal((await gemma.encode('<table>', false)).length, 1);
  assert.ok((await gemma.encode('<start_of_turn>', false)).length > 1);
});

test("a folder's tokenizer gives the ids of the server that has the same model", async () => {
  const { folder, oracle, encode } = await openTokenizer('smollm2');
  const { dialect, close } = await embedded({ contextTokens: 256, parallel: 1 });
  try {
    for (const { text } of oracle.texts) {
      // The server ends a text at a NUL.
      if (text.includes('\0')) continue;
      for (const parseSpecial of [true, false]) {
        assert.deepEqual(
          await encode(text, parseSpecial),
          await dialect.tokenize(text, { parseSpecial }, NEVER),
          JSON.stringify(text),
        );
      }
    }
    const described = await dialect.describe(NEVER);
    assert.equal(described.format?.template, folder.format.template);
    assert.equal(described.vocabularySize, folder.vocabularySize);
  } finally {
    await close();
  }
});

test('a server is used with the tokenizer and template of the folder that is named with it', async () => {
  const { server, close } = await embedded({ contextTokens: 256, parallel: 1 });
  const { folder } = await openTokenizer('smollm2');
  const entry = { url: server.url, dialect: 'llama.cpp', policyVersion: 0 } as const;
  const pools = [viewOf([entry]), viewOf([{ ...entry, tokenizer: folder.folder }])];
  const unreadable = viewOf([{ ...entry, tokenizer: '/nowhere' }]);
  try {
    const [own, named] = await Promise.all(pools.map((pool) => pool.open('rollout', { signal: NEVER })));
    assert.ok(own && named);
    assert.deepEqual(named.identity, own.identity);
    const prompt: ChatMessage[] = [{ role: 'user', content: 'Say 1 + 1 = 2 🦙' }];
    const ids = await own.renderPrompt(prompt);
    assert.deepEqual(await named.renderPrompt(prompt), ids);
    assert.equal(await named.text(ids), await own.text(ids));
    await assert.rejects(unreadable.open('rollout', { signal: NEVER }), { type: 'LlmUnsuitable' });
  } finally {
    for (const pool of [...pools, unreadable]) await pool.close();
    await close();
  }
});

test('a folder that cannot be used is refused with the reason', async () => {
  const good = await tokenizerFolder('smollm2', scratch);
  const refuses = async (reason: RegExp, alter: (folder: string) => Promise<unknown>) => {
    const folder = await mkdtemp(path.join(scratch, 'bad-'));
    await cp(good, folder, { recursive: true });
    await alter(folder);
    const opened = readTokenizerFolder(folder).then((read: TokenizerFolder) =>
      ChatRenderer.create(read, NEVER),
    );
    await assert.rejects(opened, (error) => {
      assert.ok(error instanceof RolloutError);
      assert.equal(error.type, 'LlmUnsuitable');
      assert.match(error.message, reason);
      return true;
    });
  };
  const write = (name: string, text: string) => (folder: string) => writeFile(path.join(folder, name), text);
  await refuses(/tokenizer\.json/, (folder) => rm(path.join(folder, 'tokenizer.json')));
  await refuses(/tokenizer\.json is no JSON/, write('tokenizer.json', '{'));
  await refuses(/tokenizer\.json: .*added_tokens/s, write('tokenizer.json', '{"model":{"vocab":{}}}'));
  await refuses(
    /tokenizer\.json cannot be read/,
    write('tokenizer.json', '{"added_tokens":[],"model":{"type":"?","vocab":{}}}'),
  );
  await refuses(/holds no chat template/, write('tokenizer_config.json', '{"eos_token":"<|im_end|>"}'));
  await refuses(/cannot be read/, write('chat_template.jinja', '{% for %}'));
  await refuses(
    /does not close a turn/,
    write('chat_template.jinja', '{% for m in messages %}{{ m.content }}{% endfor %}'),
  );
});
