import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { SandboxClient } from '../activities/sandbox/client.ts';
import { loadTools, PROJECT_ROOT } from '../config/tools.ts';
import { type SandboxBackendName, type SandboxInfo, SandboxSpec } from '../contracts/sandbox.ts';
import { APPTAINER } from '../test/support/apptainer.ts';
import { sandboxHostAddress } from '../workers/sandbox-host/address.ts';
import { startSandboxHost } from '../workers/sandbox-host/server.ts';

/** A sandbox host in a process of its own, as in production. */
export interface BenchHost {
  readonly client: SandboxClient;
  readonly stateDir: string;
  readonly pid: number;
  create(): Promise<SandboxInfo>;
  close(): Promise<void>;
}

let rollouts = 0;

/** Starts one on the disk of the checkout's state. @throws Error with what the host said when it does not start */
export async function startBenchHost(backend: SandboxBackendName): Promise<BenchHost> {
  const parent = path.join(PROJECT_ROOT, '.rollouts');
  mkdirSync(parent, { recursive: true });
  const stateDir = mkdtempSync(path.join(parent, 'b-'));
  const argv = ['--import', 'tsx', fileURLToPath(import.meta.url), stateDir, backend];
  const child = spawn(process.execPath, argv, { cwd: PROJECT_ROOT, stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => {
    said += chunk;
  });
  const client = new SandboxClient(sandboxHostAddress(stateDir));
  const close = async (): Promise<void> => {
    await client.close();
    if (child.exitCode === null && child.signalCode === null) {
      child.stdin.end();
      await once(child, 'exit');
    }
    rmSync(stateDir, { recursive: true, force: true });
  };
  const died = once(child, 'exit').then(() => true);
  const ready = once(child.stdout, 'data').then(() => false);
  if (await Promise.race([died, ready])) {
    await close();
    throw new Error(/^RolloutError: (.*)$/m.exec(said)?.[1] ?? said);
  }
  const spec = SandboxSpec.parse({});
  return {
    client,
    stateDir,
    pid: child.pid as number,
    create: () =>
      client.create({ rolloutId: `bench-${++rollouts}`, workflowRunId: 'bench', attempt: 1, spec }),
    close,
  };
}

/** Mebibytes that a process has in memory. */
export function residentMib(pid: number): number {
  const kib = /^VmRSS:\s+([0-9]+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];
  return Math.round(Number(kib) / 1024);
}

/** The child: a host until its input ends. */
async function main(stateDir: string, backend: SandboxBackendName): Promise<void> {
  const running = await startSandboxHost({
    stateDir,
    host: 'bench',
    backend,
    capacity: 16,
    graderCapacity: 1,
    bwrapPath: loadTools().bwrap,
    apptainerPath: APPTAINER,
    logger: pino({ level: 'silent' }),
  });
  process.stdout.write('ready\n');
  process.stdin.resume();
  await once(process.stdin, 'end');
  await running.close();
  process.exit(0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [, , stateDir, backend] = process.argv as [string, string, string, SandboxBackendName];
  await main(stateDir, backend);
}
