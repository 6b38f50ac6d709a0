// `npm run test:production`: the chaos suite's short form, a backup that is restored and the overhead benchmark, each on a
// production Temporal server with a new PostgreSQL. Builds the server once, into the cache folder (minutes, needs Go); needs PostgreSQL's programs.
// `-- chaos`, `-- restore`, `-- overhead` or `-- scale` runs only that one; `scale` (many open rollouts, half an hour) only so.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { chown, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ProductionServer } from '../../chaos/temporal.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { withParentDeath } from '../../temporal-config/dev-server.ts';
import { choosePort, isFree } from '../../temporal-config/ports.ts';
import { run } from '../setup/lib/command.mjs';
import { bringTemporalServer } from './temporal-server.ts';

const SCRIPTS = path.join(PROJECT_ROOT, 'temporal-config', 'production');
const PASSWORD = 'test';
/** Milliseconds that PostgreSQL has to be made and to listen. */
const POSTGRES_MS = 120_000;

const WHAT: Record<string, string[]> = {
  chaos: ['chaos/main.ts', '--short'],
  restore: ['scripts/production/restore.ts'],
  overhead: ['bench/main.ts', 'overhead', '--n', '64'],
  scale: ['bench/main.ts', 'scale'],
};
/** What runs where nothing is named. */
const USUAL = ['chaos', 'restore', 'overhead'];

/** The user as whom a PostgreSQL runs: it refuses root. */
interface User {
  readonly uid: number;
  readonly gid: number;
}

async function main(wanted: readonly string[]): Promise<boolean> {
  const unknown = wanted.filter((name) => !(name in WHAT));
  if (unknown.length > 0) throw new Error(`${unknown.join(', ')}: there are ${Object.keys(WHAT).join(', ')}`);
  const programs = await bringTemporalServer();
  let passed = true;
  for (const name of wanted.length > 0 ? wanted : USUAL) {
    console.log(`\n${name}, on a new database`);
    passed = (await onNewDatabase(programs, WHAT[name] as string[])) && passed;
  }
  return passed;
}

async function onNewDatabase(programs: string, argv: readonly string[]): Promise<boolean> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'pg-'));
  const sqlPort = await choosePort('sqlPort', 25_432, false);
  const user = await databaseUser();
  if (user) await chown(folder, user.uid, user.gid);
  const postgres = await startPostgres(path.join(folder, 'data'), sqlPort, user);
  try {
    const sql = { SQL_PORT: String(sqlPort), SQL_PASSWORD: PASSWORD, TEMPORAL_PROGRAMS: programs };
    await run(path.join(SCRIPTS, 'database.sh'), [], { env: { ...process.env, ...sql }, timeoutMs: 300_000 });
    const file = path.join(folder, 'production.json');
    const production: ProductionServer = { programs, sqlPort, sqlPassword: PASSWORD };
    await writeFile(file, JSON.stringify(production));
    const [script, ...flags] = argv as [string];
    const args = ['--import', import.meta.resolve('tsx'), path.join(PROJECT_ROOT, script), ...flags];
    const child = spawn(process.execPath, [...args, '--production', file], { stdio: 'inherit' });
    const [code] = await once(child, 'exit');
    return code === 0;
  } finally {
    const ended = once(postgres, 'exit');
    if (postgres.exitCode === null && postgres.kill('SIGINT')) await ended; // PostgreSQL's fast shutdown
    await rm(folder, { recursive: true, force: true });
  }
}

async function startPostgres(folder: string, port: number, user: User | undefined): Promise<ChildProcess> {
  // Its user may not be able to read this checkout: the script comes on standard input.
  const [command, args] = withParentDeath('bash', ['-s', '--', folder]);
  const logFile = `${folder}.log`;
  const log = openSync(logFile, 'w');
  const child = spawn(command, args, {
    stdio: ['pipe', 'ignore', log],
    cwd: '/',
    env: { ...process.env, SQL_PORT: String(port), SQL_PASSWORD: PASSWORD },
    ...user,
  });
  closeSync(log);
  child.stdin?.end(await readFile(path.join(SCRIPTS, 'postgres.sh')));
  const giveUpAt = Date.now() + POSTGRES_MS;
  while (await isFree(port)) {
    if (child.exitCode !== null || Date.now() > giveUpAt) {
      throw new Error(`PostgreSQL did not start:\n${await readFile(logFile, 'utf8')}`);
    }
    await delay(200);
  }
  return child;
}

/** Undefined: oneself. @throws Error if this is root and the system has no user for PostgreSQL */
async function databaseUser(): Promise<User | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const id = async (flag: string) => Number((await run('id', [flag, 'postgres'], {})).stdout.trim());
  return { uid: await id('-u'), gid: await id('-g') };
}

main(process.argv.slice(2)).then(
  (passed) => process.exit(passed ? 0 : 1),
  (error: unknown) => {
    console.error(error instanceof Error ? error.stack : String(error));
    process.exit(1);
  },
);
