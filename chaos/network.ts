import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

const PROGRAMS = ['/usr/sbin/ip', '/usr/bin/nsenter', '/usr/bin/unshare', '/usr/bin/mount'];
const [IP, NSENTER, UNSHARE, MOUNT] = PROGRAMS as [string, string, string, string];
/** Where `ip netns` keeps its names. */
const NAMES = '/run/netns';
const BRIDGE = 'hosts0';
/** Of documentation (RFC 5737): nothing outside is hidden by it. */
const PREFIX = '192.0.2';

/** A machine of the network: programs that are started inside see its interface alone. */
export interface Place {
  readonly address: string;
  /** What a command has to begin with to run there. */
  readonly inside: readonly string[];
}

/** What is missing for a network of one's own, as a sentence; null if nothing is. */
export function networkProblem(): string | null {
  if (process.getuid?.() !== 0) return 'only root can make network namespaces';
  const missing = PROGRAMS.filter((program) => !existsSync(program));
  if (missing.length > 0) return `missing: ${missing.join(', ')} (Debian: iproute2, util-linux, mount)`;
  return null;
}

/** A command that runs `argv` with a network and mounts of its own: all that a {@link Network} makes goes with it. */
export function apart(argv: readonly string[]): [string, string[]] {
  return [UNSHARE, ['--net', '--mount', '--propagation', 'private', '--', ...argv]];
}

/** Machines side by side on one bridge. This process, which must be {@link apart}, is at the bridge itself. */
export class Network {
  /** Of this process, for the machines. */
  readonly address = `${PREFIX}.1`;
  private readonly names: readonly string[];

  private constructor(names: readonly string[]) {
    this.names = names;
  }

  /** `names`: short, since interfaces are named after them. */
  static async make(names: readonly string[]): Promise<Network> {
    const network = new Network(names);
    await mkdir(NAMES, { recursive: true });
    await run(MOUNT, ['-t', 'tmpfs', 'tmpfs', NAMES]);
    await ip('link', 'set', 'lo', 'up');
    await ip('link', 'add', BRIDGE, 'type', 'bridge');
    await ip('address', 'add', `${network.address}/24`, 'dev', BRIDGE);
    await ip('link', 'set', BRIDGE, 'up');
    for (const name of names) {
      await ip('netns', 'add', name);
      await ip('link', 'add', cable(name), 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name);
      await ip('link', 'set', cable(name), 'master', BRIDGE, 'up');
      await ip('-n', name, 'address', 'add', `${network.place(name).address}/24`, 'dev', 'eth0');
      for (const device of ['lo', 'eth0']) await ip('-n', name, 'link', 'set', device, 'up');
    }
    return network;
  }

  place(name: string): Place {
    return {
      address: `${PREFIX}.${10 + this.names.indexOf(name)}`,
      inside: [NSENTER, `--net=${NAMES}/${name}`, '--'],
    };
  }

  /** Pulls a machine's cable out. */
  async cut(name: string): Promise<void> {
    await ip('link', 'set', cable(name), 'down');
  }

  async mend(name: string): Promise<void> {
    await ip('link', 'set', cable(name), 'up');
  }
}

const cable = (name: string) => `to-${name}`;

async function ip(...args: string[]): Promise<void> {
  await run(IP, args);
}
