import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { makeDialect } from '../../activities/llm/dialects.ts';
import { PROBE } from '../../activities/llm/identity.ts';
import { openModel } from '../../activities/llm/model.ts';
import { readTokenizerFolder, type TokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import { tokenizerFolder } from '../support/tokenizer-folders.ts';
import { NEVER } from './embedded.ts';
import type { FakeKind } from './fakes/answers.ts';
import { type FakeOptions, fakeLlm } from './fakes/fake-llm.ts';

let scratch: string;
let tokenizer: string;
let folder: TokenizerFolder;
before(async () => {
  scratch = await mkdtemp(path.join(os.tmpdir(), 'rollouts-model-'));
  tokenizer = await tokenizerFolder('smollm2', scratch);
  folder = await readTokenizerFolder(tokenizer);
});
after(() => rm(scratch, { recursive: true }));

/** Opens the model behind a fake server of a kind. */
async function open(kind: FakeKind, entry: Partial<LlmServer>, options: FakeOptions = {}) {
  const fake = await fakeLlm(kind, options);
  const server: LlmServer = { url: fake.url, dialect: 'vllm', policyVersion: 0, ...entry };
  const dialect = makeDialect(server.dialect, fake.url);
  try {
    return await openModel(server, dialect, NEVER);
  } finally {
    await dialect.close();
    await fake.close();
  }
}

/** A server's tokenizer that is the folder's, but for what `text` says. */
async function encodingsOf(alter: (text: string, ids: number[]) => number[]) {
  const known = new Map<string, number[]>();
  for (const text of PROBE) {
    known.set(text, alter(text, await folder.codec.tokenize(text, { parseSpecial: true }, NEVER)));
  }
  return (text: string) => known.get(text) ?? [];
}

test('a server whose tokenizer is that of the folder is opened with it', async () => {
  const model = await open('vllm', { tokenizer }, { encode: await encodingsOf((_, ids) => ids) });
  assert.equal(model.contextTokens, 64);
  assert.equal(model.identity.name, 'tiny');
  assert.deepEqual(model.renderer.stopIds, [2]);
});

test('a folder that is not the tokenizer of the server is refused with the first difference', async () => {
  const encode = await encodingsOf((text, ids) => (text.includes('東京都') ? [...ids.slice(0, 5), 77] : ids));
  await assert.rejects(open('vllm', { tokenizer }, { encode }), {
    type: 'LlmUnsuitable',
    message: /is not that of http.*token 5 is \d+ by the folder, 77 by the server/,
  });
});

test('what a server does not tell has to be named with it', async () => {
  await assert.rejects(open('vllm', {}), { type: 'LlmUnsuitable', message: /\(tokenizer\)/ });
  await assert.rejects(open('tensorrt-llm', { dialect: 'tensorrt-llm', tokenizer }), {
    type: 'LlmUnsuitable',
    message: /\(contextTokens\)/,
  });
  const entry = { dialect: 'prorl', tokenizer, contextTokens: 32 } as const;
  assert.equal((await open('prorl', entry)).contextTokens, 32);
});

test('the context limit is the lower of what the server tells and what is named with it', async () => {
  const encode = await encodingsOf((_, ids) => ids);
  for (const [named, limit] of [
    [40, 40],
    [100, 64],
  ] as const) {
    const model = await open('vllm', { tokenizer, contextTokens: named }, { encode });
    assert.equal(model.contextTokens, limit);
  }
});

test('another kind of server behind the address is none', async () => {
  await assert.rejects(open('prorl', { tokenizer }), {
    type: 'LlmUnreachable',
    message: /is no vllm server/,
  });
});
