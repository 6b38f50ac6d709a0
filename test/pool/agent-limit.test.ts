import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { randomNumbers } from '../../client/eval/random.ts';
import { AgentLimit } from '../../workers/agent-limit.ts';
import { LlmPacing } from '../../workers/llm-pacing.ts';
import { until } from '../support/until.ts';

/** Seconds of a step of the simulation; the limit is looked at every four. */
const STEP = 0.25;

interface Setting {
  readonly hosts: number;
  readonly capacity: number;
  /** Of all servers, at a second. */
  readonly slots: (second: number) => number;
  readonly initSeconds: number;
  readonly turnSeconds: number;
  readonly paced: boolean;
  readonly seed: number;
}

interface Agent {
  readonly host: number;
  at: 'init' | 'waiting' | 'server' | 'tool';
  left: number;
  turns: number;
}

/** Hosts with more to begin than they can, and servers that serve so many requests at once, the rest in turn. */
function simulate(
  { hosts, capacity, slots, initSeconds, turnSeconds, paced, seed }: Setting,
  seconds: number,
) {
  const next = randomNumbers(seed);
  const drawn = (mean: number) => -mean * Math.log(1 - next());
  const limits = Array.from({ length: hosts }, () => new AgentLimit());
  const seen: { busy: number; waiting: number; most: number }[] = [];
  const queue: Agent[] = [];
  let agents: Agent[] = [];
  let running = 0;
  for (let step = 0; step * STEP < seconds; step++) {
    for (const agent of agents) {
      if (agent.at === 'waiting') continue;
      agent.left -= STEP;
      if (agent.left > 0) continue;
      if (agent.at === 'server') {
        running--;
        agent.turns--;
        agent.at = 'tool';
        agent.left = drawn(0.2);
      } else {
        agent.at = 'waiting';
        queue.push(agent);
      }
    }
    agents = agents.filter(({ turns }) => turns > 0);
    const atOnce = slots(step * STEP);
    while (running < atOnce && queue.length > 0) {
      const agent = queue.shift() as Agent;
      Object.assign(agent, { at: 'server', left: drawn(turnSeconds) });
      running++;
    }
    for (const [host, limit] of limits.entries()) {
      let own = agents.filter((agent) => agent.host === host).length;
      if (paced && step % 4 === 0) limit.look({ running, waiting: queue.length, agents: own, hosts });
      for (; own < Math.min(capacity, limit.most); own++) {
        agents.push({ host, at: 'init', left: drawn(initSeconds), turns: 3 });
      }
      assert.ok(own <= capacity && limit.most >= 1);
    }
    const most = Math.max(...limits.map((limit) => limit.most));
    seen.push({ busy: Math.min(1, running / atOnce), waiting: queue.length, most });
  }
  return (from: number, to: number) => {
    const window = seen.slice(from / STEP, to / STEP);
    const mean = (of: (one: (typeof seen)[0]) => number) =>
      window.reduce((sum, one) => sum + of(one), 0) / window.length;
    return { busy: mean(({ busy }) => busy), waiting: mean(({ waiting }) => waiting) };
  };
}

const USUAL = { hosts: 1, capacity: 60, initSeconds: 3, turnSeconds: 1.3, paced: true, seed: 1 };

test('servers of any number are kept full, on one host or several, without a queue that grows', () => {
  const setting = fc.record({
    slots: fc.integer({ min: 4, max: 40 }),
    hosts: fc.integer({ min: 1, max: 4 }),
    initSeconds: fc.constantFrom(0.5, 3, 8),
    seed: fc.integer({ min: 1, max: 1000 }),
  });
  fc.assert(
    fc.property(setting, ({ slots, ...rest }) => {
      const run = (paced: boolean) =>
        // What was begun before anything was known of the servers has ended by then.
        simulate({ ...USUAL, ...rest, slots: () => slots, paced }, 400)(200, 400);
      const [{ busy, waiting }, unpaced] = [run(true), run(false)];
      assert.ok(busy > 0.9 * unpaced.busy, `busy ${busy}, ${unpaced.busy} unpaced`);
      assert.ok(waiting < 2 * Math.sqrt(slots) + rest.hosts, `waiting ${waiting}`);
    }),
    { numRuns: 6, seed: 1 },
  );
});

test('without it the same agents stand in line at the servers', () => {
  const at = simulate({ ...USUAL, slots: () => 8, paced: false }, 200);
  assert.ok(at(100, 200).waiting > 30);
});

test('servers that join are filled, and those that leave leave no queue behind', () => {
  const at = simulate({ ...USUAL, slots: (second) => (second < 200 ? 8 : second < 500 ? 20 : 6) }, 800);
  for (const { busy, waiting } of [at(100, 200), at(350, 500), at(650, 800)]) {
    assert.ok(busy > 0.9, `busy ${busy}`);
    assert.ok(waiting < 12, `waiting ${waiting}`);
  }
});

test('too few sandboxes for the servers are all used', () => {
  const at = simulate({ ...USUAL, capacity: 6, slots: () => 8 }, 200);
  const unpaced = simulate({ ...USUAL, capacity: 6, slots: () => 8, paced: false }, 200);
  assert.deepEqual(at(0, 200), unpaced(0, 200));
});

test('a pause lowers nothing, others who fill the servers keep nobody out, and silence ends in no limit', () => {
  const limit = new AgentLimit();
  assert.equal(limit.most, Number.POSITIVE_INFINITY);
  const busy = { running: 9, waiting: 20, agents: 40, hosts: 1 };
  limit.look(busy);
  assert.equal(limit.most, 25, 'the 20 that do not wait, and half as many again as the root of 9');
  for (let look = 0; look < 100; look++) limit.look({ running: 0, waiting: 0, agents: 0, hosts: 1 });
  assert.equal(limit.most, 25);
  for (let look = 0; look < 100; look++) limit.look({ ...busy, waiting: 500, agents: 1 });
  assert.equal(limit.most, 1);
  for (let look = 0; look < 60; look++) limit.look(undefined);
  assert.equal(limit.most, Number.POSITIVE_INFINITY);
});

test('what the servers of the label say is looked at, and a host takes its part of it', async () => {
  const asked: (string | undefined)[] = [];
  const load = (running: number, waiting: number) => ({ url: 'u', load: { running, waiting } });
  const pacing = new LlmPacing({
    label: 'policy',
    view: {
      serverLoads: async (_signal, label) => {
        asked.push(label);
        return [load(4, 10), load(5, 10)];
      },
      lease: { state: { workers: ['host-a-0a1b2c3d', 'host-a-9f8e7d6c', 'host-b-0a1b2c3d'] } } as never,
    },
    agents: async () => 30,
  });
  assert.equal(pacing.most, Number.POSITIVE_INFINITY);
  pacing.start();
  await until(() => pacing.most < 100, 'a look at the servers');
  await pacing.stop();
  assert.equal(pacing.most, 23, '30 agents less half of the 20 that wait, and half of the reserve');
  assert.deepEqual([...new Set(asked)], ['policy']);
});
