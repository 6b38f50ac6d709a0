import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';

const run = promisify(execFile);
/** The one whose Python the account has: it may reach no other. */
const PYTHON = '/usr/bin/python3';

/** An ordinary user of a cluster, with a copy of this checkout in the home folder as `npm ci && npm run setup` leaves it. */
export class Account {
  readonly name: string;
  readonly uid: number;
  readonly home: string;
  readonly checkout: string;
  readonly env: Record<string, string>;

  private constructor(name: string, uid: number) {
    this.name = name;
    this.uid = uid;
    this.home = `/home/${name}`;
    this.checkout = path.join(this.home, 'rollouts');
    this.env = { HOME: this.home, USER: name };
  }

  static async make(name: string): Promise<Account> {
    await run('useradd', ['--create-home', '--shell', '/bin/bash', name]);
    const { stdout } = await run('id', ['--user', name]);
    const account = new Account(name, Number(stdout));
    try {
      await account.copyCheckout();
    } catch (error) {
      await account.remove();
      throw error;
    }
    return account;
  }

  private async copyCheckout(): Promise<void> {
    const { checkout, home } = this;
    const listed = await run('git', ['ls-files', '--cached', '--others', '--exclude-standard', '-z'], {
      cwd: PROJECT_ROOT,
      maxBuffer: 1 << 24,
    });
    for (const file of listed.stdout.split('\0').filter(Boolean)) {
      cpSync(path.join(PROJECT_ROOT, file), path.join(checkout, file), { recursive: true });
    }
    await run('cp', ['-a', path.join(PROJECT_ROOT, 'node_modules'), checkout]);
    const tools = loadTools();
    const bin = path.join(home, 'bin');
    mkdirSync(bin, { recursive: true });
    cpSync(tools.temporal, path.join(bin, 'temporal'));
    const known = path.dirname(path.dirname(tools.python));
    const python = path.join(home, 'python');
    await run(PYTHON, ['-m', 'venv', '--without-pip', python]);
    await run('bash', [
      '-c',
      'cp -a "$1"/lib/python3*/site-packages/. "$2"/lib/python3*/site-packages/',
      '-',
      known,
      python,
    ]);
    mkdirSync(path.join(checkout, '.rollouts'), { recursive: true });
    const [from, to] = await Promise.all([known, python].map(libraryOf));
    const list = JSON.stringify({ ...tools, temporal: path.join(bin, 'temporal') });
    writeFileSync(
      path.join(checkout, '.rollouts', 'tools.json'),
      list.replaceAll(from as string, to as string).replaceAll(known, python),
    );
    await run('chown', ['-R', `${this.name}:`, home]);
  }

  /** Runs a command line as this user, in the checkout, and returns what it says. */
  async sh(line: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
    const as = ['--reuid', this.name, '--regid', this.name, '--init-groups', '--', 'bash', '-c', line];
    const options = { cwd: this.checkout, env: { ...this.env, ...env }, maxBuffer: 1 << 24 };
    const { stdout } = await run('setpriv', as, options);
    return stdout.trim();
  }

  /** Processes of this user and of the users in its sandboxes that run now. */
  async processes(): Promise<number[]> {
    const first = Number(/^(?:.*):(\d+):/m.exec(subordinate(this.name))?.[1] ?? -1);
    const all = (await readdir('/proc')).map(Number).filter(Number.isInteger);
    return all.filter((pid) => {
      const uid = uidOf(pid);
      return uid === this.uid || (first > 0 && uid >= first && uid < first + 65_536);
    });
  }

  async remove(): Promise<void> {
    for (const pid of await this.processes()) kill(pid);
    await run('userdel', ['--remove', this.name]).catch((error: { stderr?: string }) => {
      // It has no mailbox.
      if (!/mail spool/.test(error.stderr ?? '')) throw error;
    });
  }
}

/** `lib/python3.11` of a virtual environment, since two may differ. */
async function libraryOf(environment: string): Promise<string> {
  const lib = path.join(environment, 'lib');
  const [version] = (await readdir(lib)).filter((name) => name.startsWith('python3'));
  return path.join(lib, version as string);
}

function subordinate(name: string): string {
  return readFileSync('/etc/subuid', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith(`${name}:`))
    .join('\n');
}

/** Undefined: it has ended. */
function uidOf(pid: number): number {
  try {
    return Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    return Number.NaN;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}
