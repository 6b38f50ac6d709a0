import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { SandboxClient } from '../activities/sandbox/client.ts';
import { Cluster } from '../chaos/cluster.ts';
import { PolicyServer } from '../chaos/policy-server.ts';
import { PROJECT_ROOT } from '../config/tools.ts';
import { sandboxHostAddress } from '../workers/sandbox-host/address.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile } from './measure.ts';

/** Rollouts that run at once. */
const OPEN = 200;
/** Single cancels among them. */
const SINGLES = 20;
/** How often the host is asked what it still holds; one question takes half a millisecond. */
const LOOK_MS = 5;

/**
 * Cancels among rollouts that all wait for the model in the middle of a stream, in real sandboxes: one at a time
 * (`one_…`), then all that are left by one call. From the call to the death of the sandbox's last process, and to
 * the close of the request at the LLM server.
 */
export async function benchCancel({ n, say }: BenchOptions): Promise<BenchResult> {
  const open = n ?? OPEN;
  mkdirSync(path.join(PROJECT_ROOT, '.rollouts'), { recursive: true });
  const root = mkdtempSync(path.join(PROJECT_ROOT, '.rollouts', 'c-'));
  const llm = await PolicyServer.start();
  llm.pace = { tokens: 1, ms: 3_600_000 };
  const cluster = await Cluster.start({
    ...{ root, hosts: ['a'], capacity: open, llmUrl: llm.url, silentLlmSeconds: 3600, runWorkers: 1 },
    handlers: [fileURLToPath(new URL('./waiting.ts', import.meta.url))],
  });
  const host = new SandboxClient(sandboxHostAddress(path.join(root, 'a')));
  try {
    const ids = Array.from({ length: open }, (_, index) => `w${index}`);
    say(`starting ${open} rollouts`);
    for (const id of ids) await cluster.client.start(request(id));
    await until(() => llm.served.length === open);
    await delay(8000); // signals of stages that began are handled by then

    const one: number[] = [];
    const oneLlm: number[] = [];
    for (const id of ids.slice(0, Math.min(SINGLES, open - 1))) {
      const freed = whenFreed(host, 1);
      const started = Date.now();
      await cluster.client.cancel(id, 'stale');
      one.push(((await freed).at(-1) as number) - started);
      const request = llm.served.find(({ task }) => task === id);
      oneLlm.push((request?.endedAt as number) - started);
      await cluster.client.result(id);
      await delay(200);
    }
    say(`one among ${open}: p50 ${percentile(one, 50)} ms to the sandbox's end`);

    const rest = ids.slice(one.length);
    const freed = whenFreed(host, rest.length);
    const started = Date.now();
    const report = await cluster.client.cancelMany({ rolloutIds: rest }, 'stale');
    const called = Date.now() - started;
    const all = (await freed).map((at) => at - started);
    const records = await Promise.all(rest.map((id) => cluster.client.result(id)));
    const recorded = Date.now() - started;
    const wrong = records.filter(({ cancel }) => cancel?.reason !== 'stale' || !cancel.llmAborted).length;
    const llmMs = llm.served
      .filter(({ endedAt }) => endedAt >= started)
      .map(({ endedAt }) => endedAt - started);
    say(`${rest.length} by one call: p50 ${percentile(all, 50)} ms, p99 ${percentile(all, 99)} ms`);
    return {
      bench: 'cancel',
      n: open,
      one_p50_ms: percentile(one, 50),
      one_p99_ms: percentile(one, 99),
      one_llm_p50_ms: percentile(oneLlm, 50),
      p50_ms: percentile(all, 50),
      p99_ms: percentile(all, 99),
      llm_p50_ms: percentile(llmMs, 50),
      llm_p99_ms: percentile(llmMs, 99),
      call_ms: called,
      all_recorded_ms: recorded,
      aborted: report.aborted,
      signalled: report.signalled,
      wrong_receipts: wrong,
      peers: {},
      ratios: {},
    };
  } finally {
    await host.close();
    await cluster.stop();
    await llm.close();
    rmSync(root, { recursive: true, force: true });
  }
}

const request = (rolloutId: string) => ({
  rolloutId,
  task: { handler: 'waiting', id: rolloutId, data: { name: rolloutId, kind: 'usual', turns: 3 } },
  // Many of them on one machine: their heartbeats are not what is measured.
  heartbeatTimeoutSeconds: 60,
  hostLostSeconds: 120,
});

/** When each of the next `count` sandboxes of a host ended, in milliseconds since the epoch. */
async function whenFreed(host: SandboxClient, count: number): Promise<number[]> {
  const { sandboxes: before } = await host.stats();
  const freed: number[] = [];
  while (freed.length < count) {
    await delay(LOOK_MS);
    const { sandboxes } = await host.stats();
    const now = Date.now();
    while (freed.length < before - sandboxes) freed.push(now);
  }
  return freed;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await delay(50);
}
