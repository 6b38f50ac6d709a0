import { readdirSync } from 'node:fs';
import type { SandboxBackendName } from '../contracts/sandbox.ts';
import { findLeaks } from '../workers/sandbox-host/leaks.ts';
import { startBenchHost } from './host.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile, times } from './measure.ts';

/** Making a sandbox and running a first command in its shell, then letting it go; and what is left after all. */
export async function benchSandbox({ n: wanted, say }: BenchOptions): Promise<BenchResult> {
  const n = wanted ?? 200;
  const bubblewrap = await onBackend('bubblewrap', n, say);
  const apptainer = await onBackend('apptainer', Math.min(n, 20), say).catch((error: Error) => {
    say(`apptainer: not measured: ${error.message}`);
    return null;
  });
  return {
    bench: 'sandbox',
    n,
    bubblewrap_p50_ms: bubblewrap.p50_ms,
    bubblewrap_p99_ms: bubblewrap.p99_ms,
    bubblewrap_release_p50_ms: bubblewrap.release_p50_ms,
    apptainer_p50_ms: apptainer?.p50_ms ?? null,
    apptainer_p99_ms: apptainer?.p99_ms ?? null,
    apptainer_release_p50_ms: apptainer?.release_p50_ms ?? null,
    leaked: bubblewrap.leaked + (apptainer?.leaked ?? 0),
    peers: {},
    ratios: {},
  };
}

async function onBackend(backend: SandboxBackendName, n: number, say: BenchOptions['say']) {
  const host = await startBenchHost(backend);
  const { client } = host;
  try {
    const released: number[] = [];
    const one = async (): Promise<number> => {
      const started = performance.now();
      const { sandboxId, fence } = await host.create();
      const call = { fence, callId: '0', command: 'echo ready', timeoutMs: 60_000 };
      const { output } = await client.shell(sandboxId, 'main', call);
      if (output.text !== 'ready\n') throw new Error(`the first command printed ${output.text}`);
      const ms = performance.now() - started;
      released.push(...(await times(1, () => client.release(sandboxId))));
      return ms;
    };
    for (let warm = 0; warm < 3; warm++) await one();
    const files = openFiles(host.pid);
    const all: number[] = [];
    for (let done = 0; done < n; done++) all.push(await one());
    const leaks = await findLeaks(host.stateDir);
    const kept = Math.max(0, openFiles(host.pid) - files);
    for (const { kind, what } of leaks) say(`left behind: ${kind} ${what}`);
    if (kept > 0) say(`left behind: ${kept} open files of the host`);
    const [p50_ms, p99_ms] = [percentile(all, 50), percentile(all, 99)];
    const release_p50_ms = percentile(released, 50);
    say(
      `${backend}: create and first command ${p50_ms} ms p50, ${p99_ms} ms p99; release ${release_p50_ms} ms`,
    );
    return { p50_ms, p99_ms, release_p50_ms, leaked: leaks.length + kept };
  } finally {
    await host.close();
  }
}

function openFiles(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}
