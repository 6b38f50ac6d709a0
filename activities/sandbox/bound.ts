import type { ExecRequest, ExecResult, ShellRequest, ShellResult } from '../../contracts/sandbox.ts';
import type { DiffWorkspace, WorkspaceDiff } from '../../contracts/workspace.ts';
import type { SandboxClient } from './client.ts';

/** A sandbox as one holder of its fence sees it: no ids, no fences, only what can be done in it. */
export interface BoundSandbox {
  /** The workspace's path as seen inside. */
  readonly workspace: string;
  exec(request: Omit<ExecRequest, 'fence'>): Promise<ExecResult>;
  /** Runs a command in a persistent bash. The same call id never runs twice. */
  shell(name: string, request: Omit<ShellRequest, 'fence'>): Promise<ShellResult>;
  writeFile(path: string, content: string | Uint8Array, mode?: number): Promise<void>;
  readFile(path: string, maxBytes?: number): Promise<Buffer>;
  /** Later diffs compare with the workspace as it is now. */
  markStart(): Promise<void>;
  /** What is not as it was at the start. */
  diff(request?: Omit<DiffWorkspace, 'fence'>): Promise<WorkspaceDiff>;
}

/** Binds a client to one sandbox and fence. */
export function bindSandbox(
  client: SandboxClient,
  sandbox: { sandboxId: string; fence: number; workspace: string },
  signal: AbortSignal,
): BoundSandbox {
  const { sandboxId, fence, workspace } = sandbox;
  return {
    workspace,
    exec: (request) => client.exec(sandboxId, { ...request, fence }, signal),
    shell: (name, request) => client.shell(sandboxId, name, { ...request, fence }, signal),
    writeFile: (path, content, mode = 0o644) =>
      client.writeFile(
        sandboxId,
        { fence, path, content: Buffer.from(content).toString('base64'), mode },
        signal,
      ),
    readFile: async (path, maxBytes = 1024 ** 2) => {
      const file = await client.readFile(sandboxId, { fence, path, maxBytes }, signal);
      return Buffer.from(file.content, 'base64');
    },
    markStart: async () => {
      await client.markStart(sandboxId, { fence }, signal);
    },
    diff: (request = {}) => client.diff(sandboxId, { ...request, fence }, signal),
  };
}
