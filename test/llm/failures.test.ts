import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { startEmbeddedLlm } from '../../activities/llm/embedded/server.ts';
import type { HttpTimeouts } from '../../activities/llm/http.ts';
import { LlamaCppDialect } from '../../activities/llm/llama-cpp.ts';
import { loadTools } from '../../config/tools.ts';
import { type FailureType, RolloutError } from '../../contracts/failures.ts';
import { viewOf } from '../support/pool.ts';
import { embedded, NEVER } from './embedded.ts';
import { type Answer, fakeServer, stream } from './fake-server.ts';

const REQUEST = { promptIds: [5, 6], maxTokens: 8, temperature: 1, topP: 1 };

function failure(type: FailureType, words: RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof RolloutError, String(error));
    assert.equal(error.type, type, error.message);
    assert.match(error.message, words);
    return true;
  };
}

const token = (id: number, predicted: number, prob: unknown = 0.5) => ({
  stop: false,
  tokens: [id],
  tokens_predicted: predicted,
  completion_probabilities: [{ id, prob }],
});
const end = (predicted: number, stop_type = 'limit') => ({
  stop: true,
  stop_type,
  tokens_predicted: predicted,
});

/** Tokens told of, and how generating on a fake server failed. */
async function generateOn(
  answer: Answer,
  type: FailureType,
  words: RegExp,
  timeouts?: Partial<HttpTimeouts>,
) {
  const server = await fakeServer(answer);
  const llm = new LlamaCppDialect(server.url, timeouts);
  const told: number[] = [];
  try {
    await assert.rejects(
      llm.generate(REQUEST, NEVER, (ids) => told.push(...ids)),
      failure(type, words),
    );
  } finally {
    await llm.close();
    await server.close();
  }
  return told;
}

test('log-probabilities that cannot be trained on are refused, never replaced', async () => {
  for (const prob of [0, -0.1, 1.5]) {
    const told = await generateOn(stream([token(7, 1, prob), end(1)]), 'LlmInvalidAnswer', /token 7/);
    assert.deepEqual(told, []);
  }
  const missing = { ...token(7, 1), completion_probabilities: [{ id: 7 }] };
  await generateOn(stream([missing, end(1)]), 'LlmInvalidAnswer', /token 7 the probability undefined/);
  await generateOn(stream([token(7, 1, null), end(1)]), 'LlmInvalidAnswer', /prob/);
  await generateOn(stream([token(7, 1, 'NaN'), end(1)]), 'LlmInvalidAnswer', /prob/);
});

test('tokens without log-probabilities, or those of other tokens, are refused', async () => {
  const bare = { ...token(7, 1), completion_probabilities: [] };
  await generateOn(stream([bare, end(1)]), 'LlmInvalidAnswer', /1 tokens with 0 log-probabilities/);
  const other = { ...token(7, 1), completion_probabilities: [{ id: 8, prob: 0.5 }] };
  await generateOn(stream([other, end(1)]), 'LlmInvalidAnswer', /1 tokens with 1 log-probabilities/);
  await generateOn(stream([token(7, 1), end(0)]), 'LlmInvalidAnswer', /with 0 tokens, 1 were sent/);
  await generateOn(stream([token(7, 1), end(1, 'word')]), 'LlmInvalidAnswer', /ended by "word"/);
});

test('a stream that is cut keeps what was told and can be tried again', async () => {
  const cut = stream([token(7, 1), token(8, 2)]);
  assert.deepEqual(await generateOn(cut, 'LlmUnreachable', /cut the stream after 2 tokens/), [7, 8]);
  const inError = stream([token(7, 1), { error: { code: 500, message: 'out of memory' } }]);
  assert.deepEqual(await generateOn(inError, 'LlmUnreachable', /500: out of memory/), [7]);
});

test("a refusal carries the server's own words", async () => {
  const status = (code: number): Answer => {
    return (_request, response) => {
      response.writeHead(code).end(JSON.stringify({ error: { message: 'its own words' } }));
    };
  };
  await generateOn(status(400), 'LlmRejected', /400: its own words/);
  await generateOn(status(404), 'LlmRejected', /404: its own words/);
  await generateOn(status(429), 'LlmUnreachable', /429/);
  await generateOn(status(503), 'LlmUnreachable', /503: its own words/);
});

test('an error that comes with status 200 is one, in the server’s own words', async () => {
  const whole = (type: string, body: string): Answer => {
    return (_request, response) => void response.writeHead(200, { 'content-type': type }).end(body);
  };
  const error = JSON.stringify({ error: { message: 'out of memory', code: 500 } });
  await generateOn(whole('application/json', error), 'LlmUnreachable', /500: out of memory/);
  await generateOn(
    whole('application/json', '{"a": 1}'),
    'LlmInvalidAnswer',
    /in place of a stream: {"a": 1}/,
  );
  await generateOn(whole('text/html', '<p>Log in</p>'), 'LlmInvalidAnswer', /text\/html in place.*Log in/);
  const server = await fakeServer(whole('application/json', error));
  const llm = new LlamaCppDialect(server.url);
  await assert.rejects(llm.describe(NEVER), failure('LlmUnreachable', /500: out of memory/));
  await llm.close();
  await server.close();
});

test('ids that no vocabulary has are refused', async () => {
  for (const id of [-1, 1.5, 2 ** 31, 2 ** 32 + 3]) {
    await generateOn(stream([token(id, 1), end(1)]), 'LlmInvalidAnswer', /tokens\[0\]|id/);
  }
});

test('a server that hangs is left, before the first byte and between tokens', async () => {
  await generateOn(() => {}, 'LlmUnreachable', /HEADERS_TIMEOUT/, { firstByteMs: 50 });
  const hangs: Answer = (_request, response) => {
    response.writeHead(200);
    response.write(`data: ${JSON.stringify(token(7, 1))}\n\n`);
    // Keep-alive comments are no progress.
    const timer = setInterval(() => response.write(': ping\n\n'), 10);
    response.on('close', () => clearInterval(timer));
  };
  const told = await generateOn(hangs, 'LlmUnreachable', /no token for 100 ms/, { idleMs: 100 });
  assert.deepEqual(told, [7]);
});

test('a kept connection that the server closes meanwhile costs another one, and nothing else', async () => {
  const sockets = new Set<unknown>();
  let closed = 0;
  const server = await fakeServer((request, response) => {
    const kept = sockets.has(request.socket);
    sockets.add(request.socket);
    if (kept) {
      closed++;
      request.socket.destroy();
    } else {
      response.end(JSON.stringify({ status: 'ok' }));
    }
  });
  const llm = new LlamaCppDialect(server.url);
  try {
    // A connection is kept a moment after its answer.
    while (closed === 0) {
      await llm.health(NEVER);
      await new Promise((resolve) => setImmediate(resolve));
    }
  } finally {
    await llm.close();
    await server.close();
  }
});

test('an abort returns what was received, even from a server that hangs', async () => {
  const server = await fakeServer((_request, response) => {
    response.writeHead(200);
    response.write(`data: ${JSON.stringify(token(7, 1))}\n\n`);
  });
  const llm = new LlamaCppDialect(server.url);
  const controller = new AbortController();
  const generated = await llm.generate(REQUEST, controller.signal, () => controller.abort());
  assert.deepEqual(generated, { ids: [7], logprobs: [Math.log(0.5)], finish: 'abort' });
  const early = await llm.generate(REQUEST, controller.signal);
  assert.deepEqual(early, { ids: [], logprobs: [], finish: 'abort' });
  await llm.close();
  await server.close();
});

test('a real server: too long a prompt is refused; killed in the middle, it is unreachable', async () => {
  const { dialect, server, close } = await embedded({ contextTokens: 256, parallel: 1 });
  try {
    const long = { ...REQUEST, promptIds: Array.from({ length: 300 }, () => 500) };
    await assert.rejects(
      dialect.generate(long, NEVER),
      failure('LlmRejected', /exceeds the available context/),
    );
    const told: number[] = [];
    const cut = dialect.generate({ ...REQUEST, maxTokens: 200, seed: 1 }, NEVER, (ids) => {
      told.push(...ids);
      if (told.length === 3) process.kill(server.pid, 'SIGKILL');
    });
    await assert.rejects(cut, failure('LlmUnreachable', /completion/));
    assert.ok(told.length >= 3);
    await server.exited;
    await assert.rejects(dialect.generate(REQUEST, NEVER), failure('LlmUnreachable', /ECONNREFUSED/));
  } finally {
    await close();
  }
});

test('a rollout is given the server that answers, and waits where none does', async () => {
  const { server, close } = await embedded({ contextTokens: 512, parallel: 1 });
  const gone = { url: 'http://127.0.0.1:1', dialect: 'llama.cpp', policyVersion: 1 } as const;
  const there = { url: server.url, dialect: 'llama.cpp', policyVersion: 2 } as const;
  const servers = viewOf([gone, there]);
  const empty = viewOf([]);
  const none = viewOf([gone]);
  try {
    const policy = await servers.open('rollout', { signal: NEVER });
    assert.equal(policy.server, server.url);
    assert.equal(policy.server, there.url);
    assert.equal(policy.contextTokens, 512);
    const ids = await policy.renderPrompt([{ role: 'user', content: 'Hi' }]);
    assert.match(await policy.text(ids), /<\|im_start\|>user\nHi<\|im_end\|>\n<\|im_start\|>assistant\n$/);
    assert.equal(await policy.text([...ids.slice(-2), 2]), await policy.text(ids.slice(-2)));
    policy.close();
    for (const pool of [none, empty]) {
      const cancel = new AbortController();
      const told: boolean[] = [];
      const onWaiting = (waiting: boolean) => {
        told.push(waiting);
        if (waiting) cancel.abort(new Error('no longer wanted'));
      };
      const open = pool.open('rollout', { signal: cancel.signal, onWaiting });
      await assert.rejects(open, /no longer wanted/);
      assert.deepEqual(told, [true, false]);
    }
  } finally {
    await servers.close();
    await none.close();
    await empty.close();
    await close();
  }
});

test('an embedded server that cannot start says why', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'rollouts-llm-'));
  const { python, model } = loadTools();
  const start = (more: { python?: string; model?: string; port?: number }) =>
    startEmbeddedLlm({
      python,
      model,
      port: 0,
      contextTokens: 256,
      parallel: 1,
      threads: 1,
      logFile: path.join(folder, 'log'),
      ...more,
    });
  const taken = await fakeServer(() => {});
  const port = Number(new URL(taken.url).port);
  const cases = [
    [{ model: '/nowhere/model.gguf' }, /model file \/nowhere\/model\.gguf does not exist/],
    [{ python: '/nowhere/python' }, /\/nowhere\/python cannot be run: .*ENOENT/],
    [{ port }, new RegExp(`cannot listen on 127\\.0\\.0\\.1:${port}: Address already in use`)],
    [{ model: import.meta.filename }, /did not start/],
    [{ python: '/bin/false' }, /ended at once \(exit code 1\)/],
  ] as const;
  try {
    for (const [more, words] of cases) await assert.rejects(start(more), failure('LlmUnreachable', words));
  } finally {
    await taken.close();
    await rm(folder, { recursive: true });
  }
});
