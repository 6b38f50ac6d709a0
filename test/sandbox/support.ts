import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { TestContext } from 'node:test';
import { pino } from 'pino';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import { loadTools } from '../../config/tools.ts';
import { RolloutError } from '../../contracts/failures.ts';
import {
  type ExecResult,
  type SandboxBackendName,
  type SandboxInfo,
  SandboxSpec,
  type ShellResult,
} from '../../contracts/sandbox.ts';
import { sandboxHostAddress } from '../../workers/sandbox-host/address.ts';
import { removeTree } from '../../workers/sandbox-host/remove-tree.ts';
import { type RunningSandboxHost, startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { APPTAINER } from '../support/apptainer.ts';

export const BACKENDS: SandboxBackendName[] = [
  'bubblewrap',
  ...(APPTAINER ? ['apptainer' as const] : []),
  'process',
];

/** A folder that goes with the test. Short, because the host's socket lies in it. */
export function temporaryFolder(t: Pick<TestContext, 'after'>): string {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'sb-'));
  t.after(() => removeTree(folder)); // however deep

  return folder;
}

export function hostOptions(stateDir: string, backend: SandboxBackendName = 'bubblewrap', capacity = 4) {
  const logger = pino({ level: 'silent' });
  const programs = { bwrapPath: loadTools().bwrap, apptainerPath: APPTAINER };
  return { stateDir, host: 'test-host', backend, capacity, graderCapacity: 2, ...programs, logger };
}

/** A real sandbox host and its client, both gone with the test. */
export async function startHost(
  t: Pick<TestContext, 'after'>,
  backend: SandboxBackendName = 'bubblewrap',
  capacity = 4,
): Promise<{ running: RunningSandboxHost; client: SandboxClient; stateDir: string }> {
  const stateDir = temporaryFolder(t);
  const running = await startSandboxHost(hostOptions(stateDir, backend, capacity));
  const client = new SandboxClient(running);
  t.after(async () => {
    await client.close();
    await running.close();
  });
  return { running, client, stateDir };
}

/** A host in a process of its own, as in production, and its client; both gone with the test. `env`: added to its environment. */
export async function startHostProcess(
  t: Pick<TestContext, 'after'>,
  stateDir: string,
  backend: SandboxBackendName = 'bubblewrap',
  env: NodeJS.ProcessEnv = {},
): Promise<{ child: ChildProcess; client: SandboxClient }> {
  const script = `
    import { hostOptions } from './test/sandbox/support.ts';
    import { startSandboxHost } from './workers/sandbox-host/server.ts';
    await startSandboxHost(hostOptions(process.argv[1], process.argv[2]));
    console.log('ready');`;
  const argv = ['--import', 'tsx', '--input-type=module', '-e', script, stateDir, backend];
  const child = spawn(process.execPath, argv, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  const died = once(child, 'exit').then(() => {
    throw new Error('the host did not start');
  });
  died.catch(() => {}); // raced below; later it is the test that ends the host
  await Promise.race([once(child.stdout as NodeJS.ReadableStream, 'data'), died]);
  const client = new SandboxClient(sandboxHostAddress(stateDir));
  t.after(() => client.close());
  return { child, client };
}

let rollouts = 0;

/** One sandbox and the two things most done in it. */
export class Box {
  readonly client: SandboxClient;
  readonly info: SandboxInfo;
  private calls = 0;

  constructor(client: SandboxClient, info: SandboxInfo) {
    this.client = client;
    this.info = info;
  }

  static async create(
    client: SandboxClient,
    spec: Parameters<typeof SandboxSpec.parse>[0] = {},
  ): Promise<Box> {
    const rolloutId = `rollout-${++rollouts}`;
    const request = { rolloutId, workflowRunId: 'run-1', attempt: 1, spec: SandboxSpec.parse(spec) };
    return new Box(client, await client.create(request));
  }

  bash(command: string, timeoutMs = 30_000, maxOutputBytes = 16_384, name = 'main'): Promise<ShellResult> {
    const { sandboxId, fence } = this.info;
    const callId = `${name}.${this.calls++}`;
    return this.client.shell(sandboxId, name, { fence, callId, command, timeoutMs, maxOutputBytes });
  }

  exec(argv: string[], stdin?: string, timeoutMs = 30_000): Promise<ExecResult> {
    const { sandboxId, fence } = this.info;
    const input = stdin === undefined ? {} : { stdin: Buffer.from(stdin).toString('base64') };
    return this.client.exec(sandboxId, { fence, argv, timeoutMs, ...input });
  }

  release() {
    return this.client.release(this.info.sandboxId);
  }
}

/** For `assert.rejects`: a RolloutError of this type. */
export function failure(type: string, text = /./) {
  return (error: unknown) => error instanceof RolloutError && error.type === type && text.test(error.message);
}

/** Resolves when `condition` holds. */
export async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
