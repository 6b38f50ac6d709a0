import type { TestContext } from 'node:test';
import { type BoundSandbox, bindSandbox } from '../../activities/sandbox/bound.ts';
import type { Tool, ToolOutcome } from '../../activities/tools/tool.ts';
import type { SandboxBackendName, SandboxSpec } from '../../contracts/sandbox.ts';
import { Box, startHost } from '../sandbox/support.ts';

let calls = 0;

/** A real sandbox as a tool sees it. */
export class Bench {
  readonly box: Box;
  readonly sandbox: BoundSandbox;

  private constructor(box: Box) {
    this.box = box;
    this.sandbox = bindSandbox(box.client, box.info, new AbortController().signal);
  }

  /** With a host of its own, both gone with the test. */
  static async start(
    t: Pick<TestContext, 'after'>,
    spec: Partial<SandboxSpec> = {},
    backend: SandboxBackendName = 'bubblewrap',
  ): Promise<Bench> {
    const { client } = await startHost(t, backend);
    return new Bench(await Box.create(client, spec));
  }

  call(tool: Tool, args: Record<string, unknown>, timeoutMs = 30_000, callId = `0.${calls++}`) {
    return tool.run(args, { sandbox: this.sandbox, callId, timeoutMs }) as Promise<ToolOutcome>;
  }

  /** What a command printed; it must succeed. */
  async sh(command: string): Promise<string> {
    const end = await this.box.exec(['/bin/bash', '-c', command]);
    if (end.exitCode !== 0) throw new Error(`${command}: ${end.stderr.text}`);
    return end.stdout.text;
  }
}
