import type { SandboxBackendName } from '../contracts/sandbox.ts';
import { type BenchHost, residentMib, startBenchHost } from './host.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { FsyncProbe, percentile, rounded, times } from './measure.ts';
import { sweRexTimes } from './peers/swe-rex.ts';
import { tmuxTimes } from './peers/tmux.ts';

const COMMAND = 'true';
/** A host lives for days: what its first commands cost, until its code is compiled, is not the figure. */
const WARM_UP = 2000;
const OUTPUT_BYTES = 200_000_000;

/**
 * One command in a persistent shell through the sandbox host's API; the whole durable tool call, with the record
 * of what was sampled before it and of what was observed after it; 200 MB of output beside a neighbour. Peers, in
 * the same run and with the same command: tmux and SWE-ReX.
 */
export async function benchBash({ n: wanted, peers, say }: BenchOptions): Promise<BenchResult> {
  const n = wanted ?? 500;
  const ours = await onBackend('bubblewrap', n, say);
  const host = await startBenchHost('bubblewrap');
  const durable = await durableCalls(host, n).finally(() => host.close());
  const flood = await outputFlood(say);
  const apptainer = await onBackend('apptainer', n, say).catch((error: Error) => {
    say(`apptainer: not measured: ${error.message}`);
    return null;
  });
  const p50_ms = percentile(ours, 50);
  const others = peers
    ? { tmux: await peer('tmux', tmuxTimes, 200, say), swe_rex: await peer('swe-rex', sweRexTimes, 50, say) }
    : {};
  const ratio = (other: number[] | null | undefined) =>
    other ? rounded(percentile(other, 50) / p50_ms) : null;
  return {
    bench: 'bash',
    n,
    p50_ms,
    p99_ms: percentile(ours, 99),
    apptainer_p50_ms: apptainer && percentile(apptainer, 50),
    apptainer_p99_ms: apptainer && percentile(apptainer, 99),
    ...durable,
    ...flood,
    peers: Object.fromEntries(
      Object.entries(others).map(([name, all]) => [
        name,
        all ? { n: all.length, p50_ms: percentile(all, 50), p99_ms: percentile(all, 99) } : { missing: true },
      ]),
    ),
    ratios: Object.fromEntries(Object.entries(others).map(([name, all]) => [name, ratio(all)])),
  };
}

async function onBackend(
  backend: SandboxBackendName,
  n: number,
  say: BenchOptions['say'],
): Promise<number[]> {
  const host = await startBenchHost(backend);
  try {
    const shell = await openShell(host);
    await times(WARM_UP, shell);
    const all = await times(n, shell);
    say(`${backend}: one command ${percentile(all, 50)} ms p50, ${percentile(all, 99)} ms p99`);
    return all;
  } finally {
    await host.close();
  }
}

/** A function that runs the command once in a shell of a sandbox of its own. */
async function openShell({ client, create }: BenchHost): Promise<() => Promise<void>> {
  const { sandboxId, fence } = await create();
  let calls = 0;
  return async () => {
    const call = { fence, callId: `${calls++}`, command: COMMAND, timeoutMs: 60_000 };
    const { exitCode } = await client.shell(sandboxId, 'main', call);
    if (exitCode !== 0) throw new Error(`\`${COMMAND}\` gave ${exitCode}`);
  };
}

/** Tool calls as the agent makes them: sampled on disk, run, observed on disk. */
async function durableCalls({ client, create, stateDir }: BenchHost, n: number) {
  const { sandboxId, fence } = await create();
  let seq = 0;
  let turn = 0;
  const ids = Array.from({ length: 60 }, (_, index) => index + 100);
  const call = async (): Promise<void> => {
    const callId = `${turn}.0`;
    const sampled = {
      ...{ kind: 'sampled', turn, promptLength: 1000 + turn, ids, logprobs: ids.map(() => -0.123456) },
      ...{ policyVersion: 1, finish: 'stop', text: 'To see whether it is true:', server: 'bench', ms: 100 },
      calls: [{ callId, tool: 'bash', arguments: { command: COMMAND }, status: 'ok' }],
      startedAt: new Date().toISOString(),
    };
    await client.appendLedger(sandboxId, { fence, seq: seq++, record: sampled });
    const result = await client.shell(sandboxId, 'main', {
      fence,
      callId,
      command: COMMAND,
      timeoutMs: 60_000,
    });
    const { exitCode, output, ms } = result;
    const observed = {
      ...{ kind: 'observed', turn, deltaIds: ids.slice(0, 20) },
      results: [{ callId, tool: 'bash', status: 'ok', exitCode, text: output.text, ms }],
      messages: [{ role: 'tool', content: output.text }],
    };
    await client.appendLedger(sandboxId, { fence, seq: seq++, record: observed });
    turn++;
  };
  await times(WARM_UP, call);
  const disk = new FsyncProbe(stateDir);
  const fsyncs: number[] = [];
  const all: number[] = [];
  // In turn, so that both meet the same disk.
  for (let done = 0; done < n; done++) {
    all.push(...(await times(1, call)));
    fsyncs.push(disk.time());
  }
  disk.close();
  const [tool_call_p50_ms, fsync_p50_ms] = [percentile(all, 50), percentile(fsyncs, 50)];
  return {
    tool_call_p50_ms,
    tool_call_p99_ms: percentile(all, 99),
    fsync_p50_ms,
    tool_call_without_fsyncs_p50_ms: rounded(tool_call_p50_ms - 2 * fsync_p50_ms),
  };
}

/** What 200 MB of output from one sandbox do to the host and to a neighbour. */
async function outputFlood(say: BenchOptions['say']) {
  const host = await startBenchHost('bubblewrap');
  try {
    const neighbour = await openShell(host);
    await times(WARM_UP, neighbour);
    const { sandboxId, fence } = await host.create();
    const before = residentMib(host.pid);
    let peak = before;
    let running = true;
    const command = `head -c ${OUTPUT_BYTES} /dev/zero | tr '\\0' x`;
    const started = performance.now();
    const flood = host.client
      .shell(sandboxId, 'main', { fence, callId: '0', command, timeoutMs: 600_000 })
      .finally(() => {
        running = false;
      });
    const beside: number[] = [];
    while (running) {
      beside.push(...(await times(1, neighbour)));
      peak = Math.max(peak, residentMib(host.pid));
    }
    const { output } = await flood;
    if (output.totalBytes !== OUTPUT_BYTES) throw new Error(`${output.totalBytes} bytes came`);
    const seconds = (performance.now() - started) / 1000;
    const figures = {
      output_mb_per_s: Math.round(OUTPUT_BYTES / 1e6 / seconds),
      output_neighbour_p50_ms: percentile(beside, 50),
      output_neighbour_p99_ms: percentile(beside, 99),
      output_host_growth_mib: peak - before,
    };
    say(`200 MB of output: ${JSON.stringify(figures)}`);
    return figures;
  } finally {
    await host.close();
  }
}

async function peer(
  name: string,
  run: (n: number, command: string) => Promise<number[]>,
  n: number,
  say: BenchOptions['say'],
): Promise<number[] | null> {
  try {
    const all = await run(n, COMMAND);
    say(`${name}: one command ${percentile(all, 50)} ms p50, ${percentile(all, 99)} ms p99`);
    return all;
  } catch (error) {
    say(`${name}: not measured: ${(error as Error).message}`);
    return null;
  }
}
