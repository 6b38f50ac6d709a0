import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Agent as Connections, request } from 'undici';
import { Agent } from '../activities/agent/agent.ts';
import { LedgerWriter } from '../activities/agent/ledger-writer.ts';
import { fenced } from '../activities/agent/parsers/fenced.ts';
import { StopSwitch } from '../activities/agent/stop.ts';
import type { PoolView } from '../activities/llm/pool-view.ts';
import { bash } from '../activities/tools/bash.ts';
import { TokenSequence } from '../activities/trajectory/tokens.ts';
import type { LedgerRecord } from '../contracts/ledger.ts';
import { Limits, Sampling } from '../contracts/request.ts';
import { viewOf } from '../test/support/pool.ts';
import { type BenchHost, residentMib, startBenchHost } from './host.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile, rounded } from './measure.ts';
import { startTokenServer, type TokenServer } from './token-server.ts';

const TURNS = 51;
/** The two that are compared, counted from 1, and all that are told. */
const EARLY = 5;
const LATE = 50;
const TOLD = [EARLY, 10, 20, 30, 40, LATE];
/** About 64 tokens sampled and 576 observed in each turn: 32,000 in all. */
const ANSWER = `I look at the next part of the file.${' So far so good.'.repeat(8)}\n\`\`\`bash\ncat part\n\`\`\``;
const RESULT = 'The quick brown fox jumps over the lazy dog again. '.repeat(52);
const CONVERSATIONS = 10;
const WARM_UP = 2;

const NEVER = new AbortController().signal;

/**
 * What a turn costs beside the server's own time as a conversation grows to 32,000 tokens: the agent's loop, rendering,
 * parsing, sending all ids, and two records on disk through a sandbox host. Beside it, in the same run, what is left of
 * that if the same ids are only sent and the answer is only received. And what an open rollout takes in memory.
 */
export async function benchConversation({ n, say }: BenchOptions): Promise<BenchResult> {
  const server = await startTokenServer({ answer: ANSWER, firstMs: 0, tokenMs: 0 });
  const servers = viewOf([server.entry]);
  const host = await startBenchHost('bubblewrap');
  const conversations = n ?? CONVERSATIONS;
  try {
    const beside: number[][] = [];
    const sending: number[][] = [];
    let tokens = 0;
    const kept: Agent[] = [];
    let before = 0;
    for (let each = 1; each <= WARM_UP + conversations; each++) {
      const known = (await server.times()).length;
      const { agent, began, length, records } = await converse(servers, host, each);
      const served = (await server.times()).slice(known).map(([, ms]) => ms);
      tokens = length;
      const sent = await sendOnly(server, records);
      // The first ones warm up.
      if (each <= WARM_UP) {
        before = await memory();
        continue;
      }
      kept.push(agent);
      sending.push(sent);
      beside.push(served.map((ms, turn) => (began[turn + 1] ?? Number.NaN) - (began[turn] as number) - ms));
    }
    const bytes = ((await memory()) - before) / kept.length;
    const turnMs = (turn: number) =>
      percentile(
        beside.map((turns) => turns[turn - 1] as number),
        50,
      );
    const sendingMs = (turn: number) =>
      percentile(
        sending.map((turns) => turns[TOLD.indexOf(turn)] as number),
        50,
      );
    const restMs = (turn: number) => rounded(turnMs(turn) - sendingMs(turn));
    const each = (of: (turn: number) => number) => Object.fromEntries(TOLD.map((turn) => [turn, of(turn)]));
    say(
      `${tokens} tokens: turn ${EARLY} ${restMs(EARLY)} ms, turn ${LATE} ${restMs(LATE)} ms beside server and sending`,
    );
    return {
      bench: 'conversation',
      n: conversations,
      tokens,
      turn_5_ms: restMs(EARLY),
      turn_50_ms: restMs(LATE),
      turns_ms: each(restMs),
      sending_ms: each(sendingMs),
      with_sending_ms: each(turnMs),
      worker_bytes_per_open_rollout: Math.round(bytes),
      worker_bytes_per_token: rounded(bytes / tokens),
      host_mib: residentMib(host.pid),
      peers: {},
      ratios: { early_late: rounded(restMs(EARLY) / restMs(LATE)) },
    };
  } finally {
    await servers.close();
    await server.close();
    await host.close();
  }
}

/** One conversation of an agent of its own; when each turn began. */
async function converse(servers: PoolView, { client }: BenchHost, each: number) {
  const rolloutId = `bench-conversation-${each}`;
  const { sandboxId, fence } = await client.create({
    ...{ rolloutId, workflowRunId: 'bench', attempt: 1 },
    spec: null,
  });
  const policy = await servers.open(rolloutId, { signal: NEVER });
  const began: number[] = [];
  let length = 0;
  const ledger = new LedgerWriter([], (seq: number, record: LedgerRecord) =>
    client.appendLedger(sandboxId, { fence, seq, record }),
  );
  const agent = new Agent({
    prompt: [{ role: 'user', content: 'Read the file part by part.' }],
    tools: [bash],
    parser: fenced,
    policy,
    sampling: Sampling.parse({}),
    limits: Limits.parse({ maxTurns: TURNS }),
    ledger,
    stop: new StopSwitch(),
    runTool: async (_tool, { callId, tool }) => ({
      callId,
      tool,
      status: 'ok',
      exitCode: 0,
      text: RESULT,
      ms: 0,
    }),
    progress: (_turn, tokens) => {
      began.push(performance.now());
      length = tokens;
    },
  });
  await agent.run();
  policy.close();
  await client.release(sandboxId);
  return { agent, began, length, records: ledger.records };
}

/**
 * What the same prompts take beside the server's own time if they are only written as JSON and sent, and the answer is
 * only received: nothing of it is read. In the order of the turns that are told.
 */
async function sendOnly(server: TokenServer, records: readonly LedgerRecord[]): Promise<number[]> {
  const ids = TokenSequence.fromLedger(records)?.prompt ?? [];
  const lengths = records.flatMap((record) => (record.kind === 'sampled' ? [record.promptLength] : []));
  const prompts = TOLD.map((turn) => ids.slice(0, lengths[turn - 1]));
  const known = (await server.times()).length;
  const dispatcher = new Connections();
  const took: number[] = [];
  for (const token_ids of prompts) {
    const began = performance.now();
    const body = JSON.stringify({ stream: true, token_ids });
    const headers = { 'content-type': 'application/json' };
    const answer = await request(`${server.entry.url}/inference/v1/generate`, {
      ...{ dispatcher, method: 'POST', headers, body },
    });
    await answer.body.arrayBuffer();
    took.push(performance.now() - began);
  }
  await dispatcher.close();
  const served = (await server.times()).slice(known);
  return took.map((ms, at) => ms - (served[at]?.[1] ?? Number.NaN));
}

/** Bytes in use after a collection. */
async function memory(): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  // What a first one only marks, and what waits for a turn of the event loop.
  for (let round = 0; round < 3; round++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
