import { setTimeout as delay } from 'node:timers/promises';
import { Agent, request } from 'undici';
import { viewOf } from '../test/support/pool.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile, rounded } from './measure.ts';
import { startTokenServer } from './token-server.ts';

const CONCURRENT = 64;
const ROUNDS = 5;
/** Requests of each in one round, one after the other. */
const EACH = 5;
const SPREAD_MS = 500;
const PROMPT_TOKENS = 2_000;
/** About what one of 64 sees of a busy server. */
const SERVER = { firstMs: 100, tokenMs: 25, answer: ' and so on'.repeat(6) };

const NEVER = new AbortController().signal;

/**
 * What our way to an LLM server adds to it: 64 rollouts that ask again and again, and in turns with them, in one run, the
 * same requests by a bare HTTP client that reads the stream and looks at nothing. Times are without the server's own,
 * which it measures itself.
 */
export async function benchLatency({ n, say }: BenchOptions): Promise<BenchResult> {
  const server = await startTokenServer(SERVER);
  const servers = viewOf([server.entry]);
  const agent = new Agent({ connections: CONCURRENT });
  const rounds = n ?? ROUNDS;
  const promptIds = Array.from({ length: PROMPT_TOKENS }, (_, at) => 1_000 + at);
  const asked = { maxTokens: 256, temperature: 1, topP: 1 };
  try {
    const policies = await Promise.all(
      Array.from({ length: CONCURRENT }, (_, at) => servers.open(`bench-${at}`, { signal: NEVER })),
    );
    const ways = {
      bare: async (_at: number, ids: number[]) => {
        const body = JSON.stringify({
          model: 'none',
          token_ids: ids,
          stream: true,
          sampling_params: {},
        });
        const options = { method: 'POST', body, dispatcher: agent } as const;
        const answer = await request(`${server.entry.url}/inference/v1/generate`, options);
        for await (const _ of answer.body);
      },
      ours: async (at: number, ids: number[]) => {
        await policies[at]?.generate({ ...asked, promptIds: ids }, NEVER);
      },
    };
    const seen = { bare: [] as number[], ours: [] as number[] };
    const cpu = { bare: 0, ours: 0 };
    let numbered = 0;
    // The first round of each warms up.
    for (let round = 0; round <= rounds; round++) {
      for (const way of ['bare', 'ours'] as const) {
        const before = process.cpuUsage();
        const known = (await server.times()).length;
        const times = new Map<number, number>();
        await Promise.all(
          Array.from({ length: CONCURRENT }, async (_, at) => {
            // They began some time ago, each at another.
            await delay((SPREAD_MS * at) / CONCURRENT);
            for (let each = 0; each < EACH; each++) {
              const first = ++numbered;
              const started = performance.now();
              await ways[way](at, [first, ...promptIds]);
              times.set(first, performance.now() - started);
            }
          }),
        );
        const { user, system } = process.cpuUsage(before);
        const served = (await server.times()).slice(known);
        if (round === 0) continue;
        for (const [first, ms] of served) {
          const time = times.get(first);
          if (time !== undefined) seen[way].push(time - ms);
        }
        cpu[way] += (user + system) / 1000;
      }
    }
    const [ours, bare] = [percentile(seen.ours, 50), percentile(seen.bare, 50)];
    const [ours99, bare99] = [percentile(seen.ours, 99), percentile(seen.bare, 99)];
    say(`beside the server: p50 ${ours} ms, bare ${bare} ms; p99 ${ours99} ms, bare ${bare99} ms`);
    return {
      bench: 'latency',
      n: seen.ours.length,
      concurrent: CONCURRENT,
      prompt_tokens: PROMPT_TOKENS,
      p50_ms: ours,
      p99_ms: ours99,
      added_p50_ms: rounded(ours - bare),
      added_p99_ms: rounded(ours99 - bare99),
      cpu_ms_per_request: rounded(cpu.ours / seen.ours.length),
      peers: {
        bare: { p50_ms: bare, p99_ms: bare99, cpu_ms_per_request: rounded(cpu.bare / seen.bare.length) },
      },
      ratios: { bare_p50: rounded(bare / ours) },
    };
  } finally {
    await agent.destroy();
    await servers.close();
    await server.close();
  }
}
