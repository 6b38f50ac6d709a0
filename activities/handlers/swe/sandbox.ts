import { lstatSync, mkdirSync, readdirSync, realpathSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { RolloutError } from '../../../contracts/failures.ts';
import type { ExecResult, SandboxLimits, SandboxSpec } from '../../../contracts/sandbox.ts';
import { isBelow } from '../../below.ts';
import type { BoundSandbox } from '../../sandbox/bound.ts';
import type { Environment } from './task.ts';

/** The repository's folder in the workspace. */
export const REPOSITORY = 'repo';
const [SOURCE, PACKAGES] = ['/opt/swe/repository', '/opt/swe/packages'];
const COPY_MS = 120_000;
/** Tests that have slept for so long in all wait for what never comes. */
const IDLE_SECONDS = 600;
const MB = 1024 ** 2;

/**
 * That what a task names on this host may be shown to its agent. Links are followed: a task names a path, whoever keeps
 * the folders what is there. @throws RolloutError InvalidTask naming the field
 */
function checkPlaces({ image, repository, packages }: Environment, folders: readonly string[]): void {
  if (folders.length === 0) return;
  const above = folders.map(real);
  const places = image === undefined ? { repository, packages } : { image };
  for (const [field, place] of Object.entries(places)) {
    if (place === undefined || above.some((folder) => isBelow(real(place), folder))) continue;
    throw new RolloutError(
      'InvalidTask',
      `${field}: ${place} is not below ${folders.join(' or ')} (workers.taskFolders)`,
    );
  }
}

/** Without links; what is not there is itself, and no sandbox can show it. */
function real(place: string): string {
  try {
    return realpathSync(place);
  } catch {
    return path.resolve(place);
  }
}

/**
 * What an instance's sandbox shows, the agent's and the grader's: the repository as it was, and its packages.
 * `folders`: below which tasks may name what lies on this host; anywhere if there is none.
 * @throws RolloutError InvalidTask naming the field that names something else
 */
export function sandboxOf(
  environment: Environment,
  folders: readonly string[] = [],
): Partial<SandboxSpec> & { limits: SandboxLimits; environment: Record<string, string> } {
  checkPlaces(environment, folders);
  const { image, repository, packages } = environment;
  const variables = variablesOf(environment);
  const limits = {
    memoryBytes: 4096 * MB,
    processes: 512,
    cpuSeconds: 3600,
    fileBytes: 1024 * MB,
    diskBytes: 8192 * MB,
    diskFiles: 500_000,
    openFiles: 1024,
    outputBytes: 1024 * MB,
  };
  if (image !== undefined) {
    // Over the image's own: its history may hold the fix.
    const binds = [{ source: emptyFolder(), target: `${repository}/.git` }];
    return { image, limits, binds, environment: variables };
  }
  const binds = [{ source: repository, target: SOURCE }];
  if (packages !== undefined) binds.push({ source: packages, target: PACKAGES });
  return { limits, binds, environment: variables };
}

/**
 * An empty folder of this host that everybody may look into, and nobody else has made or filled.
 * @throws RolloutError HandlerFailed
 */
export function emptyFolder(parent = os.tmpdir()): string {
  const user = process.getuid?.() ?? 0;
  const folder = path.join(parent, `durable-rollouts-empty-${user}`);
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  const { uid, mode } = lstatSync(folder);
  const isOurs = uid === user && (mode & 0o170022) === 0o040000;
  if (!isOurs || readdirSync(folder).length > 0) {
    throw new RolloutError(
      'HandlerFailed',
      `${folder} is to be an empty folder that only user ${user} may write`,
    );
  }
  return folder;
}

/** The grader's, in which tests do not wait for each other until the deadline. */
export function graderSandboxOf(...asked: Parameters<typeof sandboxOf>): Partial<SandboxSpec> {
  const { limits, ...shown } = sandboxOf(...asked);
  return { ...shown, limits: { ...limits, idleSeconds: IDLE_SECONDS } };
}

/** What instances' Python needs in its environment. */
export function variablesOf({ image }: Environment): Record<string, string> {
  return image === undefined
    ? { PYTHONPATH: PACKAGES, PYTHONDONTWRITEBYTECODE: '1' }
    : { PYTHONDONTWRITEBYTECODE: '1' };
}

/** Puts the repository, without any history, into the workspace. @throws RolloutError HandlerFailed */
export async function placeRepository(
  sandbox: BoundSandbox,
  { image, repository }: Environment,
): Promise<string> {
  const source = image === undefined ? SOURCE : repository;
  const target = `${sandbox.workspace}/${REPOSITORY}`;
  const script = `
set -eo pipefail
mkdir -p "$2"
tar -C "$1" --exclude=./.git --exclude='*/__pycache__' -cf - . | tar -C "$2" --no-same-owner -xf -
chmod -R u+rwX "$2"`;
  await must(sandbox, 'HandlerFailed', 'the repository could not be copied', {
    argv: ['bash', '-c', script, 'place', source, target],
    timeoutMs: COPY_MS,
  });
  return target;
}

/** Runs what has to succeed. @throws RolloutError of this type with what it said */
export async function must(
  sandbox: BoundSandbox,
  type: 'HandlerFailed' | 'GraderFailed',
  what: string,
  request: Parameters<BoundSandbox['exec']>[0],
): Promise<ExecResult> {
  const end = await sandbox.exec(request);
  if (end.exitCode === 0) return end;
  const said = (end.stderr.text || end.stdout.text).trim().slice(-500);
  throw new RolloutError(type, `${what}: ${end.timedOut ? 'it took too long' : said}`);
}
