import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { run } from '../setup/lib/command.mjs';
import { programPath } from './needs.ts';

/** What the machine has of Debian; with another list goes another {@link BASE}. */
const PACKAGES = [
  ...['systemd', 'systemd-sysv', 'dbus', 'dbus-user-session', 'libpam-systemd', 'udev', 'ca-certificates'],
  ...['bubblewrap', 'uidmap', 'python3', 'git', 'procps', 'iproute2', 'postgresql'],
];
/** Changes with what {@link makeBase} does. */
const BASE = 'base-1';
const MINUTE = 60_000;

/** Where the units look for the checkout and its like. */
const OPT = '/opt';
const AGENT = `[Unit]
Description=What runs the commands of the machine's owner
RequiresMountsFor=${OPT}
[Service]
ExecStart=/bin/bash ${OPT}/rollouts/scripts/machine/agent.sh
KillMode=process
Restart=always
[Install]
WantedBy=multi-user.target
`;

/** As the set-up writes it; of these the machine runs bubblewrap and Python. */
const TOOLS = {
  temporal: `${OPT}/temporal/temporal`,
  python: '/usr/bin/python3',
  bwrap: '/usr/bin/bwrap',
  model: `${OPT}/none.gguf`,
};

/** What a machine is started from. */
export interface Disks {
  /** Gone with the machine. */
  readonly folder: string;
  readonly kernel: string;
  /** Library that lets the kernel run on newer processors (registers.c). */
  readonly registers: string;
  readonly system: string;
  readonly project: string;
}

/**
 * Makes a new machine's disks: Debian (built once, into `cache`), and for /opt this checkout as it is now and the Temporal
 * server in `programs`.
 */
export async function makeDisks(cache: string, programs: string): Promise<Disks> {
  const base = path.join(cache, 'machine', BASE, 'system.ext4');
  if (!existsSync(base)) await makeBase(path.dirname(base));
  const folder = await mkdtemp(path.join(os.tmpdir(), 'machine-'));
  const system = path.join(folder, 'system.ext4');
  await run('cp', ['--sparse=always', base, system]);
  const registers = path.join(folder, 'registers.so');
  const source = fileURLToPath(new URL('registers.c', import.meta.url));
  await run('cc', ['-O2', '-shared', '-fPIC', '-o', registers, source]);
  const kernel = programPath('linux.uml');
  return { folder, kernel, registers, system, project: await makeProject(folder, programs) };
}

/** Debian's packages in a file system, with Node as it is here. */
async function makeBase(base: string): Promise<void> {
  console.log('makes a Debian for the machine, once (minutes)');
  const making = `${base}.new`;
  await rm(making, { recursive: true, force: true });
  await mkdir(making, { recursive: true });
  const root = path.join(making, 'root');
  const include = `--include=${PACKAGES.join(',')}`;
  // What it mounts goes with it.
  await run('unshare', ['--mount', 'debootstrap', '--variant=minbase', include, 'bookworm', root], {
    timeoutMs: 60 * MINUTE,
  });
  const put = (name: string, text: string) => writeFile(path.join(root, name), text);
  await put('etc/fstab', `/dev/ubda / ext4 defaults 0 1\n/dev/ubdb ${OPT} ext4 defaults 0 2\n`);
  await put('etc/hostname', 'machine\n');
  await put('etc/hosts', '127.0.0.1 localhost machine\n');
  await put('etc/systemd/system/agent.service', AGENT);
  // To be kept over a power cut.
  await mkdir(path.join(root, 'var/log/journal'), { recursive: true });
  await cp(process.execPath, path.join(root, 'usr/bin/node'), { dereference: true });
  const masked = 'apt-daily.timer apt-daily-upgrade.timer e2scrub_reap.service serial-getty@ttyS0.service';
  await run('chroot', [root, 'sh', '-ec', `systemctl enable agent; systemctl mask ${masked}; apt-get clean`]);
  await makeImage(root, path.join(making, 'system.ext4'), '12G');
  await rm(root, { recursive: true });
  await rename(making, base);
}

/** This checkout, as its files are here, its packages, and the Temporal server. */
async function makeProject(folder: string, programs: string): Promise<string> {
  const root = path.join(folder, 'project');
  const checkout = path.join(root, 'rollouts');
  await mkdir(path.join(checkout, '.rollouts'), { recursive: true });
  const copy =
    'git ls-files -z --cached --others --exclude-standard | xargs -0 cp -a --parents -t "$1"; ' +
    'cp -a node_modules "$1"; cp -a "$2" "$3"';
  await run('bash', ['-ec', copy, 'copy', checkout, programs, path.join(root, 'temporal')], {
    cwd: PROJECT_ROOT,
  });
  await writeFile(path.join(checkout, '.rollouts', 'tools.json'), JSON.stringify(TOOLS));
  const file = path.join(folder, 'project.ext4');
  await makeImage(root, file, '4G');
  await rm(root, { recursive: true });
  return file;
}

async function makeImage(root: string, file: string, size: string): Promise<void> {
  const options = ['-q', '-t', 'ext4', '-E', 'root_owner=0:0', '-d', root, file, size];
  await run('mke2fs', options, { timeoutMs: 10 * MINUTE });
}
