import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { SandboxClient } from '../activities/sandbox/client.ts';
import { withNothingInherited } from '../config/inherited.ts';
import type { Config } from '../config/load.ts';
import { apptainerProgram } from '../config/programs.ts';
import { loadTools } from '../config/tools.ts';
import { RolloutError } from '../contracts/failures.ts';
import { sandboxHostAddress } from '../workers/sandbox-host/address.ts';

const ENTRY = fileURLToPath(new URL('../workers/sandbox-host/for-grading.ts', import.meta.url));

/** A sandbox host of one command's own, for grading without a running stack; started when the first grader asks. */
export class GradingHost {
  private readonly config: Config;
  private started: Promise<{ child: ChildProcess; folder: string; client: SandboxClient }> | undefined;

  constructor(config: Config) {
    this.config = config;
  }

  /** @throws RolloutError SandboxUnavailable with what to do about it */
  client = async (): Promise<SandboxClient> => {
    this.started ??= this.start();
    return (await this.started).client;
  };

  /** Its sandboxes are gone when this resolves. */
  async close(): Promise<void> {
    if (!this.started) return;
    const { child, folder, client } = await this.started;
    await client.close();
    child.kill('SIGTERM');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    await rm(folder, { recursive: true, force: true });
  }

  private async start() {
    const folder = await mkdtemp(path.join(tmpdir(), 'grading-'));
    const { sandbox } = this.config;
    const options = {
      stateDir: folder,
      backend: sandbox.backend,
      graderCapacity: sandbox.graderCapacity,
      bwrapPath: loadTools().bwrap,
      apptainerPath: apptainerProgram(this.config),
      image: sandbox.image,
    };
    const [command, ...args] = withNothingInherited(loadTools().python, [
      ...[process.execPath, '--import', import.meta.resolve('tsx'), ENTRY],
      JSON.stringify(options),
    ]);
    const child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    const ended = once(child, 'exit').then(() => [{ problem: 'its process ended' }]);
    const [said] = (await Promise.race([once(child, 'message'), ended])) as [{ problem?: string }];
    if (said.problem !== undefined) {
      await rm(folder, { recursive: true, force: true });
      throw new RolloutError('SandboxUnavailable', `no sandbox to grade in: ${said.problem}`);
    }
    return { child, folder, client: new SandboxClient(sandboxHostAddress(folder)) };
  }
}
