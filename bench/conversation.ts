import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Agent } from '../activities/agent/agent.ts';
import { LedgerWriter } from '../activities/agent/ledger-writer.ts';
import { fenced } from '../activities/agent/parsers/fenced.ts';
import { StopSwitch } from '../activities/agent/stop.ts';
import type { PoolView } from '../activities/llm/pool-view.ts';
import { bash } from '../activities/tools/bash.ts';
import type { LedgerRecord } from '../contracts/ledger.ts';
import { Limits, Sampling } from '../contracts/request.ts';
import { viewOf } from '../test/support/pool.ts';
import { type BenchHost, residentMib, startBenchHost } from './host.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile, rounded } from './measure.ts';
import { startTokenServer } from './token-server.ts';

const TURNS = 51;
/** The two that are compared, counted from 1. */
const EARLY = 5;
const LATE = 50;
/** About 64 tokens sampled and 576 observed in each turn: 32,000 in all. */
const ANSWER = `I look at the next part of the file.${' So far so good.'.repeat(8)}\n\`\`\`bash\ncat part\n\`\`\``;
const RESULT = 'The quick brown fox jumps over the lazy dog again. '.repeat(52);
const CONVERSATIONS = 10;
const WARM_UP = 2;

const NEVER = new AbortController().signal;

/**
 * What a turn costs beside the server's own time as a conversation grows to 32,000 tokens: the agent's loop, rendering,
 * parsing, sending all ids, and two records on disk through a sandbox host. And what an open rollout takes in memory.
 */
export async function benchConversation({ n, say }: BenchOptions): Promise<BenchResult> {
  const server = await startTokenServer({ answer: ANSWER, firstMs: 0, tokenMs: 0 });
  const servers = viewOf([server.entry]);
  const host = await startBenchHost('bubblewrap');
  const conversations = n ?? CONVERSATIONS;
  try {
    const beside: number[][] = [];
    let tokens = 0;
    const kept: Agent[] = [];
    let before = 0;
    for (let each = 1; each <= WARM_UP + conversations; each++) {
      const known = (await server.times()).length;
      const { agent, began, length } = await converse(servers, host, each);
      const served = (await server.times()).slice(known).map(([, ms]) => ms);
      tokens = length;
      // The first ones warm up.
      if (each <= WARM_UP) {
        before = await memory();
        continue;
      }
      kept.push(agent);
      beside.push(served.map((ms, turn) => (began[turn + 1] ?? Number.NaN) - (began[turn] as number) - ms));
    }
    const bytes = ((await memory()) - before) / kept.length;
    const at = (turn: number) => beside.map((turns) => turns[turn - 1] as number);
    const [early, late] = [percentile(at(EARLY), 50), percentile(at(LATE), 50)];
    say(`${tokens} tokens: turn ${EARLY} ${early} ms, turn ${LATE} ${late} ms beside the server`);
    return {
      bench: 'conversation',
      n: conversations,
      tokens,
      turn_5_ms: early,
      turn_50_ms: late,
      turns_ms: Object.fromEntries([5, 10, 20, 30, 40, 50].map((turn) => [turn, percentile(at(turn), 50)])),
      worker_bytes_per_open_rollout: Math.round(bytes),
      worker_bytes_per_token: rounded(bytes / tokens),
      host_mib: residentMib(host.pid),
      peers: {},
      ratios: { early_late: rounded(early / late) },
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
  return { agent, began, length };
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
