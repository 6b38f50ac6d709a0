import { execFile } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { chown, rm, writeFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';

/**
 * Standard streams of a program as pipes and files. What Node itself gives a child are sockets, and a program
 * that opens `/dev/stdin` or `/dev/stdout` by name (many do) cannot open a socket.
 */
export interface Streams {
  /** For `stdio` of spawn; {@link handedOver} comes after. */
  readonly stdio: [number | 'ignore', number, number];
  readonly stdout: Socket;
  readonly stderr: Socket;
  /** Closes this process's copies of the program's ends. */
  handedOver(): void;
}

/**
 * Makes them in `folder`, under names that begin with `name` and are gone again when this resolves.
 * `ownerUid`: who is to open them by name.
 */
export async function makeStreams(
  folder: string,
  name: string,
  stdin: Buffer | null,
  ownerUid: number | null,
): Promise<Streams> {
  const [input, output, errors] = ['in', 'out', 'err'].map((end) => path.join(folder, `${name}.${end}`)) as [
    string,
    string,
    string,
  ];
  const opened: number[] = [];
  const open = (file: string, flags: number): number => {
    const fd = openSync(file, flags);
    opened.push(fd);
    return fd;
  };
  try {
    await promisify(execFile)('/usr/bin/mkfifo', ['-m', '600', output, errors], { env: {} });
    if (stdin) await writeFile(input, stdin, { mode: 0o644 });
    if (ownerUid !== null) await Promise.all([output, errors].map((file) => chown(file, ownerUid, -1)));
    // The reading ends first, and not blocking, or each open would wait for the other.
    const [fromOutput, fromErrors] = [output, errors].map((file) =>
      open(file, constants.O_RDONLY | constants.O_NONBLOCK),
    ) as [number, number];
    const ends: Streams['stdio'] = [
      stdin ? open(input, constants.O_RDONLY) : 'ignore',
      open(output, constants.O_WRONLY),
      open(errors, constants.O_WRONLY),
    ];
    return {
      stdio: ends,
      stdout: new Socket({ fd: fromOutput, readable: true, writable: false }),
      stderr: new Socket({ fd: fromErrors, readable: true, writable: false }),
      handedOver: () => {
        for (const fd of ends) if (typeof fd === 'number') closeSync(fd);
      },
    };
  } catch (error) {
    for (const fd of opened) closeSync(fd);
    throw error;
  } finally {
    await Promise.all([input, output, errors].map((file) => rm(file, { force: true })));
  }
}
