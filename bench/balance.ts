import { Balancer } from '../activities/llm/balance/balancer.ts';
import { ExpectedTurn } from '../activities/llm/balance/expected-turn.ts';
import { randomNumbers } from '../client/eval/random.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile, rounded } from './measure.ts';

/** Chooses a server for a rollout that begins, and is told what it does. */
interface Strategy {
  begin(rollout: number): number;
  samples?(rollout: number): void;
  received?(rollout: number, tokens: number): void;
  idles?(rollout: number, tokens: number): void;
  ends?(rollout: number): void;
}

/** One rollout: for each turn the tokens that it samples and the seconds that its tools then take. */
type Rollout = readonly { readonly tokens: number; readonly toolSeconds: number }[];

/** Eight servers that serve 16 requests at once, and 160 rollouts open at a time. */
const FLEET = { servers: 8, slots: 16, open: 160, tokensPerSecond: 50 };

/**
 * `n` rollouts of mixed length on simulated servers: how long a request waits for a slot, and how evenly the
 * tokens are spread, against choosing in turn and at random. All keep a rollout on its server.
 */
export async function benchBalance({ n, say }: BenchOptions): Promise<BenchResult> {
  const rollouts = manyRollouts(n ?? 1_000);
  const ours = simulate(rollouts, heap());
  const roundRobin = simulate(rollouts, inTurn());
  const random = simulate(rollouts, atRandom());
  const peers = { round_robin: roundRobin, random };
  for (const [name, { p99_ms, imbalance_pct }] of Object.entries({ heap: ours, ...peers })) {
    say(`${name}: p99 wait ${p99_ms} ms, imbalance ${imbalance_pct} %`);
  }
  const ratio = (theirs: number) => (ours.p99_ms === 0 ? null : rounded(theirs / ours.p99_ms));
  return {
    bench: 'balance',
    n: rollouts.length,
    ...ours,
    peers,
    ratios: { round_robin: ratio(roundRobin.p99_ms), random: ratio(random.p99_ms) },
  };
}

/** The same rollouts for the same seed: turns and tool times are exponential, one turn in ten is ten times as long. */
export function manyRollouts(n: number, seed = 1): Rollout[] {
  const next = randomNumbers(seed);
  const exponential = (mean: number) => -mean * Math.log(1 - next());
  return Array.from({ length: n }, () =>
    Array.from({ length: 1 + Math.floor(exponential(6)) }, () => ({
      tokens: 1 + Math.floor(exponential(next() < 0.1 ? 1_500 : 150)),
      toolSeconds: exponential(3),
    })),
  );
}

/** The balancer as a run worker uses it. */
export function heap(): Strategy {
  const balancer = new Balancer<number>();
  const expected = new ExpectedTurn();
  for (let server = 0; server < FLEET.servers; server++) balancer.add(server);
  const name = String;
  return {
    begin: (rollout) => balancer.choose(name(rollout), expected.idle) as number,
    samples: (rollout) => balancer.lay(name(rollout), expected.sampling(0)),
    received: (rollout, tokens) => balancer.lay(name(rollout), expected.sampling(tokens)),
    idles: (rollout, tokens) => {
      expected.saw(tokens);
      balancer.lay(name(rollout), expected.idle);
    },
    ends: (rollout) => balancer.release(name(rollout)),
  };
}

/** A server after the other. */
export function inTurn(): Strategy {
  return { begin: (rollout) => rollout % FLEET.servers };
}

function atRandom(): Strategy {
  const next = randomNumbers(2);
  return { begin: () => Math.floor(next() * FLEET.servers) };
}

/** Something that happens at a time. */
interface Event {
  readonly at: number;
  run(): void;
}

/** Plays rollouts through, in simulated seconds. */
export function simulate(rollouts: readonly Rollout[], strategy: Strategy) {
  const events: Event[] = [];
  const waits: number[] = [];
  const servers = Array.from({ length: FLEET.servers }, () => ({
    free: FLEET.slots,
    waiting: [] as (() => void)[],
    tokens: 0,
  }));
  let now = 0;
  let begun = 0;
  let atLast: number[] = [];
  const after = (seconds: number, run: () => void) => {
    const event = { at: now + seconds, run };
    const place = events.findLastIndex(({ at }) => at <= event.at);
    events.splice(place + 1, 0, event);
  };
  const begin = () => {
    const number = begun++;
    const rollout = rollouts[number];
    // Once none is left to begin, what is uneven is the rollouts' own: nothing can be chosen any more.
    if (number === rollouts.length) atLast = servers.map((server) => server.tokens);
    if (rollout) turn(number, rollout, 0, servers[strategy.begin(number)] as (typeof servers)[0]);
  };
  const turn = (number: number, rollout: Rollout, index: number, server: (typeof servers)[0]) => {
    const step = rollout[index];
    if (!step) {
      strategy.ends?.(number);
      begin();
      return;
    }
    const asked = now;
    const start = () => {
      waits.push((now - asked) * 1_000);
      server.free--;
      // Told of four times on the way, as tokens come.
      for (const part of [0.25, 0.5, 0.75]) {
        const tokens = step.tokens * part;
        after(tokens / FLEET.tokensPerSecond, () => strategy.received?.(number, tokens));
      }
      after(step.tokens / FLEET.tokensPerSecond, () => {
        server.free++;
        server.tokens += step.tokens;
        strategy.idles?.(number, step.tokens);
        server.waiting.shift()?.();
        after(step.toolSeconds, () => turn(number, rollout, index + 1, server));
      });
    };
    strategy.samples?.(number);
    if (server.free > 0) start();
    else server.waiting.push(start);
  };
  for (let open = 0; open < FLEET.open; open++) begin();
  for (let event = events.shift(); event; event = events.shift()) {
    now = event.at;
    event.run();
  }
  const mean = atLast.reduce((sum, count) => sum + count, 0) / atLast.length;
  return {
    p50_ms: percentile(waits, 50),
    p99_ms: percentile(waits, 99),
    imbalance_pct: rounded((100 * (Math.max(...atLast) - mean)) / mean),
    seconds: rounded(now),
  };
}
