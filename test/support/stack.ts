import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { PROJECT_ROOT } from '../../config/tools.ts';

const ROLLOUTS = path.join(PROJECT_ROOT, 'bin', 'rollouts.mjs');

/** Settings of stacks under test: few tokens, and dead workers noticed soon. */
const SETTINGS = {
  ROLLOUTS_ROLLOUT_HEARTBEAT_TIMEOUT_SECONDS: '5',
  ROLLOUTS_ROLLOUT_HOST_LOST_SECONDS: '60',
  ROLLOUTS_ROLLOUT_SAMPLING_MAX_TOKENS_PER_TURN: '48',
  ROLLOUTS_ROLLOUT_LIMITS_MAX_TURNS: '3',
  ROLLOUTS_GATEWAY_URL: 'http://page.test:8700/',
};

/** The whole product in a state folder of its own, as a person runs it. */
export class TestStack {
  readonly folder: string;
  private child: ChildProcess | undefined;
  private said = '';

  private constructor(folder: string) {
    this.folder = folder;
  }

  static async create(): Promise<TestStack> {
    return new TestStack(await mkdtemp(path.join(tmpdir(), 'stack-')));
  }

  /** All that `up` has printed. */
  get output(): string {
    return this.said;
  }

  /** Runs `rollouts up` with these arguments; does not wait. */
  up(...args: string[]): void {
    this.child = spawn(process.execPath, [ROLLOUTS, 'up', '--state-dir', this.folder, ...args], {
      cwd: PROJECT_ROOT,
      env: { ...process.env, ...SETTINGS },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.said += text;
      });
    }
  }

  /** Waits for a line of `up`. @throws Error with all it said if it ends first. */
  async says(pattern: RegExp): Promise<void> {
    while (!pattern.test(this.said)) {
      if (this.child?.exitCode !== null) throw new Error(`up ended without ${pattern}:\n${this.said}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Waits for the end of `up`. @returns its exit code. */
  async ended(): Promise<number | null> {
    const { child } = this;
    if (!child) return null;
    if (child.exitCode === null && child.signalCode === null) {
      await new Promise((resolve) => child.once('exit', resolve));
    }
    return child.exitCode;
  }

  /** Another command against this stack. @returns what it printed and its exit code. */
  async run(...args: string[]): Promise<{ stdout: string; stderr: string; code: number }> {
    try {
      const done = await promisify(execFile)(
        process.execPath,
        [ROLLOUTS, ...args, '--state-dir', this.folder],
        { cwd: PROJECT_ROOT, env: { ...process.env, ...SETTINGS }, maxBuffer: 1 << 28 },
      );
      return { ...done, code: 0 };
    } catch (error) {
      const { stdout = '', stderr = '', code } = error as { stdout?: string; stderr?: string; code?: number };
      return { stdout, stderr, code: code ?? -1 };
    }
  }

  /** Addresses of the running stack. */
  endpoints(): { temporalAddress: string; uiUrl: string; llmServers: { url: string }[]; metrics: string[] } {
    return JSON.parse(readFileSync(path.join(this.folder, 'endpoints.json'), 'utf8'));
  }

  /** Every process of the stack: `up`, what it started, and what these started. */
  pids(): number[] {
    if (!this.child?.pid) return [];
    const pids = [this.child.pid];
    for (const pid of pids) pids.push(...childrenOf(pid));
    return pids;
  }

  /** SIGKILL to all of it at once, as a power cut would. */
  async killAll(): Promise<void> {
    for (const pid of this.pids()) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // it ended with its parent
      }
    }
    await this.ended();
  }

  /** Ends whatever still runs and removes the folder. */
  async dispose(): Promise<void> {
    if (this.child && this.child.exitCode === null) {
      this.child.kill('SIGTERM');
      await this.ended();
    }
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Direct children of a process, from the kernel. */
export function childrenOf(pid: number): number[] {
  const folder = `/proc/${pid}/task`;
  if (!existsSync(folder)) return [];
  try {
    const text = readFileSync(`${folder}/${pid}/children`, 'utf8').trim();
    return text === '' ? [] : text.split(' ').map(Number);
  } catch {
    return []; // it has just ended
  }
}
