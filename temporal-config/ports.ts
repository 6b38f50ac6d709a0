import net from 'node:net';
import { RolloutError } from '../contracts/failures.ts';

/** True if a TCP port of the loopback address can be listened on. */
export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)));
  });
}

/**
 * Makes a port this process's as long as it lives, listened on yet or not: stacks that start in the same second would
 * else choose the same. The mark is an abstract Unix socket, which the kernel takes away with the process.
 */
function claim(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const mark = net.createServer().unref();
    // Where there are no such sockets, ports are chosen without.
    mark.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code !== 'EADDRINUSE'));
    mark.listen(`\0durable-rollouts-port-${port}`, () => resolve(true));
  });
}

/**
 * The port to use: the configured one. One that a person set must be free; a default gives way to the next
 * above it that is free and that no other process here has chosen, so that two checkouts run side by side.
 * @throws RolloutError InvalidRequest that names the setting to change.
 */
export async function choosePort(setting: string, port: number, setByPerson: boolean): Promise<number> {
  for (let candidate = port; candidate < port + 200; candidate++) {
    if ((await isFree(candidate)) && (setByPerson || (await claim(candidate)))) return candidate;
    if (setByPerson) {
      throw new RolloutError(
        'InvalidRequest',
        `port ${port} is in use: stop what listens there, or set ${setting} to another one`,
      );
    }
  }
  throw new RolloutError('InvalidRequest', `no port from ${port} to ${port + 199} is free: set ${setting}`);
}
