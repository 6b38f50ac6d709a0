import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { withParentDeath } from '../../temporal-config/dev-server.ts';
import { freePort } from './temporal.ts';
import { until } from './until.ts';

const VERSION = 'v1.8.0';
/** Of its root user, as the AWS SDK's own variables. */
export const CREDENTIALS = { AWS_ACCESS_KEY_ID: 'rollouts', AWS_SECRET_ACCESS_KEY: 'not-a-secret-at-all' };

/** A real S3-compatible server over a folder. */
export interface S3Server {
  readonly endpoint: string;
  /** SIGKILL. */
  kill(): Promise<void>;
}

/** Builds Versity's gateway, once, into the cache folder (minutes, needs Go). @returns the program */
export async function buildVersitygw(): Promise<string> {
  const { env } = process;
  const cache =
    env.ROLLOUTS_CACHE ?? path.join(env.XDG_CACHE_HOME ?? `${os.homedir()}/.cache`, 'durable-rollouts');
  const folder = path.join(cache, `versitygw-${VERSION}`);
  const program = path.join(folder, 'versitygw');
  if (existsSync(program)) return program;
  await mkdir(folder, { recursive: true });
  const source = `github.com/versity/versitygw/cmd/versitygw@${VERSION}`;
  await promisify(execFile)('go', ['install', source], { env: { ...env, GOBIN: folder }, cwd: '/' });
  return program;
}

/** `folder`: exists, on a file system with extended attributes. */
export async function startS3(program: string, folder: string, port?: number): Promise<S3Server> {
  const at = port ?? (await freePort());
  const [command, args] = withParentDeath(program, ['--port', `127.0.0.1:${at}`, '--quiet', 'posix', folder]);
  const env = {
    ...process.env,
    ROOT_ACCESS_KEY: CREDENTIALS.AWS_ACCESS_KEY_ID,
    ROOT_SECRET_KEY: CREDENTIALS.AWS_SECRET_ACCESS_KEY,
  };
  const child = spawn(command, args, { env, stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = once(child, 'exit');
  await until(async () => child.exitCode !== null || (await listens(at)), 'the S3 server');
  return {
    endpoint: `http://127.0.0.1:${at}`,
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
}
