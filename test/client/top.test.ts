import assert from 'node:assert/strict';
import path from 'node:path';
import { after, test } from 'node:test';
import { spawn } from 'node-pty';
import { linesOf } from '../../client/top/draw.ts';
import type { TopState } from '../../client/top/state.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { startTestServer, type TestServer } from '../support/temporal.ts';
import { until } from '../support/until.ts';

const PLAIN = { heading: (text: string) => text, problem: (text: string) => `!${text}` };
const queue = { oldestSeconds: 4, inPerSecond: 1, outPerSecond: 0.25 };
const STATE: TopState = {
  at: '2026-01-02T03:04:05.678Z',
  temporal: 'temporal:7233',
  rollouts: {
    value: {
      stages: { queued: 3, run: 2, paused: 0, evaluate: 1 },
      ended: { completed: 40, truncated: 2, cancelled: 0, failed: 1, other: 0 },
      endedInLastMinute: 5,
    },
  },
  queues: {
    value: [
      { queue: 'rollouts-init', waiting: 12, workers: 1, ...queue },
      { queue: 'rollouts-eval', waiting: 0, workers: 0, ...queue },
    ],
  },
  hosts: { problem: 'it is away' },
  pool: {
    value: {
      ...{ pool: 'default', floor: 0, runWorkers: 1 },
      servers: [
        {
          ...{ url: 'http://gpu-1:8000', dialect: 'vllm', labels: ['policy'], version: 7, state: 'out' },
          why: 'evil \u001b]0;title\u0007 words',
          load: { value: { running: 3, waiting: 9 } },
        },
      ],
    },
  },
  batches: {
    value: [
      {
        batchId: 'step-1',
        status: { value: { admitted: 3, wanted: 8, open: 5, dropped: 2, rewardMean: 0.5 } },
      },
      { batchId: 'step-2', status: { problem: 'nothing within 3 s' } },
    ],
  },
};

test('a state is lines: figures under each other, problems named, nothing that steers a terminal', () => {
  assert.deepEqual(linesOf(STATE, 100, PLAIN), [
    'Rollouts at temporal:7233, 03:04:05 UTC',
    'open      3 queued   2 run   0 paused   1 evaluate',
    '10 min    40 completed   2 truncated   0 cancelled   1 failed',
    'ended     4.3 per minute, 5 in the last',
    '',
    'QUEUE          WAITING  OLDEST  IN/S  OUT/S  WORKERS',
    'rollouts-init  12       4 s     1.0   0.3    1',
    'rollouts-eval  0        -       1.0   0.3    NONE',
    '',
    'HOST',
    '!no answer: it is away',
    '',
    'LLM SERVER         VERSION  RUNNING  WAITING  KIND  STATE',
    'http://gpu-1:8000  7        3        9        vllm  out (policy): evil \uFFFD]0;title\uFFFD words',
    'POOL default: floor 0, 1 run workers',
    '',
    'BATCH   GROUPS  OPEN  DROPPED  MEAN REWARD',
    'step-1  3/8     5     2        0.500',
    'step-2  no answer: nothing within 3 s',
  ]);
  assert.ok(linesOf(STATE, 20, PLAIN).every((line) => line.replace('!', '').length <= 20));
});

let server: TestServer | undefined;
after(() => server?.stop());

/** `rollouts top` on a terminal of its own. */
function onTerminal(address: string) {
  const terminal = spawn(process.execPath, [path.join(PROJECT_ROOT, 'bin', 'rollouts.mjs'), 'top'], {
    ...{ cols: 100, rows: 30, cwd: PROJECT_ROOT },
    env: { ...process.env, ROLLOUTS_TEMPORAL_ADDRESS: address },
  });
  const seen = { text: '', code: undefined as number | undefined };
  terminal.onData((data) => {
    seen.text += data;
  });
  terminal.onExit(({ exitCode }) => {
    seen.code = exitCode;
  });
  const shows = (text: string) => until(() => seen.text.includes(text), `${text} in ${seen.text}`);
  return { terminal, seen, shows };
}

const [ENTER, LEAVE] = ['\u001b[?1049h', '\u001b[?1049l'];

test('on a terminal it is drawn over, says what is down, and leaves the terminal as it was', async () => {
  const nobody = onTerminal('127.0.0.1:1'); // which takes its time to find that out
  server = await startTestServer();
  const { terminal, seen, shows } = onTerminal(server.address);
  try {
    // Nobody works here.
    await shows('none is up: rollouts wait');
    await shows('no answer: nothing within 3 s'); // the pool’s workflow has no worker
    assert.match(seen.text, /rollouts-init +0 +- +0\.0 +0\.0 +NONE/);
    assert.match(seen.text, /open +0 queued +0 run +0 paused +0 evaluate/);
    assert.ok(seen.text.includes(ENTER) && !seen.text.includes(LEAVE));
    await server.stop();
    const before = seen.text.length;
    await until(
      () =>
        /evaluate/.test(seen.text.slice(before)) === false && seen.text.slice(before).includes('no answer'),
      'it is gone',
    );
    terminal.write('\u0003');
    await until(() => seen.code !== undefined, 'the end');
    assert.equal(seen.code, 0);
    assert.ok(seen.text.trimEnd().endsWith(LEAVE), JSON.stringify(seen.text.slice(-40)));
    await nobody.shows('no Temporal server answers at 127.0.0.1:1');
    nobody.terminal.write('q');
    await until(() => nobody.seen.code !== undefined, 'the end of the other');
    assert.equal(nobody.seen.code, 0);
  } finally {
    terminal.kill();
    nobody.terminal.kill();
  }
});
