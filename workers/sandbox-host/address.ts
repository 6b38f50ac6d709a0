import { readFile } from 'node:fs/promises';
import type { SandboxHostAddress } from '../../activities/sandbox/client.ts';
import { hostPaths } from './paths.ts';

/**
 * How to reach the sandbox host whose state lies in `stateDir`, whether it runs yet or not: its token is read
 * when it is first needed.
 * @throws RolloutError SandboxUnavailable when the socket's path is too long
 */
export function sandboxHostAddress(stateDir: string): SandboxHostAddress {
  const { socket, token } = hostPaths(stateDir);
  return { socketPath: socket, token: async () => (await readFile(token, 'utf8')).trim() };
}
