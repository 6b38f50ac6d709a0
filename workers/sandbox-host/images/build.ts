import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants, existsSync } from 'node:fs';
import { copyFile, mkdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { builderOf } from './builder.ts';
import { BUILD, BUILT, BYTES_PER_FILE, STOPPED, type StopReason } from './script.ts';
import { buildSpec, type ImageSource, readSource } from './source.ts';

/** How to build images. */
export interface BuildOptions {
  /** The apptainer or singularity program. */
  readonly program: string;
  /** Folder of built images, by digest; may be shared by many processes and machines with flock(2). */
  readonly cacheDir: string;
  /** Most bytes that a build may have on disk: what it unpacks, and beside that the layers and the image. */
  readonly maxBytes: number;
  /** Bytes that the disk of `cacheDir` has to have free while it builds. */
  readonly minFreeBytes: number;
  /** A copy of the image goes here. */
  readonly out?: string | undefined;
  /** What the builder says, as it comes. */
  readonly onLine?: (line: string) => void;
}

/** An image that was built, now or before. */
export interface BuiltImage {
  readonly path: string;
  readonly digest: string;
  readonly kind: ImageSource['kind'];
  readonly bytes: number;
  /** False: it had been built already, perhaps by somebody who asked at the same time. */
  readonly built: boolean;
}

const TAIL_LINES = 12;
/** How programs tell that the kernel kept a file from growing on. */
const FILE_TOO_LARGE = /SIGXFSZ|file size limit exceeded|file too large/i;

/**
 * Builds a SIF from a definition, an OCI or Docker archive, an OCI layout or a folder with a root file system.
 * The same input is built once: asked for again, or by many at once, it is taken from the cache.
 * @throws RolloutError InvalidRequest (no such source), ImageTooLarge, ImageBuildFailed in the builder's own words
 */
export async function buildImage(file: string, options: BuildOptions): Promise<BuiltImage> {
  if (options.program === '') {
    throw new RolloutError('ImageBuildFailed', 'neither apptainer nor singularity is on PATH');
  }
  const source = await readSource(file);
  await mkdir(options.cacheDir, { recursive: true });
  const image = path.join(options.cacheDir, `${source.digest}.sif`);
  const built = existsSync(image) ? false : await build(source, image, options);
  if (options.out !== undefined) await copyTo(image, path.resolve(options.out));
  const { size } = await stat(image);
  return {
    path: options.out === undefined ? image : path.resolve(options.out),
    digest: source.digest,
    kind: source.kind,
    bytes: size,
    built,
  };
}

/** True if this call is the one that built. */
async function build(source: ImageSource, image: string, options: BuildOptions): Promise<boolean> {
  const builder = await builderOf(source.kind, options.program);
  const bounds = [options.maxBytes, options.minFreeBytes].map(String);
  const script = ['/bin/bash', '-c', BUILD, 'build', image, `${image}.building`, buildSpec(source)];
  // What is told to end clears up.
  const [command, ...args] = [
    ...endsWithParent('KILL'),
    ...['/usr/bin/flock', `${image}.lock`],
    ...endsWithParent('TERM'),
    ...[...script, ...bounds, ...builder],
  ] as [string, ...string[]];
  // In its own folder: what a definition names is relative to it.
  const cwd = path.dirname(source.file);
  const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  const lines: string[] = [];
  const collect = byLine((line) => {
    lines.push(line);
    if (line !== BUILT && !line.startsWith(STOPPED)) options.onLine?.(line);
  });
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', collect);
  let code: number | null;
  try {
    [code] = (await once(child, 'close')) as [number | null];
  } catch (error) {
    throw new RolloutError('ImageBuildFailed', `${command} could not be started: ${messageOf(error)}`, {
      cause: error,
    });
  }
  if (code === 0 && existsSync(image)) return lines.includes(BUILT);
  const stopped = lines.find((line) => line.startsWith(STOPPED))?.slice(STOPPED.length + 1);
  if (stopped !== undefined || lines.some((line) => FILE_TOO_LARGE.test(line)))
    throw tooLarge(source.file, (stopped as StopReason) ?? 'bytes', options);
  const words = lines.filter((line) => line !== '').slice(-TAIL_LINES);
  throw new RolloutError('ImageBuildFailed', `${source.file} could not be built:\n${words.join('\n')}`);
}

/** The beginning of an argv whose rest is sent this signal when its parent ends. */
function endsWithParent(signal: 'KILL' | 'TERM'): string[] {
  return ['/usr/bin/setpriv', '--pdeathsig', signal, '--'];
}

function tooLarge(
  file: string,
  reason: StopReason,
  { maxBytes, minFreeBytes, cacheDir }: BuildOptions,
): RolloutError {
  const why = {
    bytes: `more than ${maxBytes} bytes when it was unpacked (sandbox.imageBytes)`,
    files: `more than ${Math.floor(maxBytes / BYTES_PER_FILE)} files when it was unpacked (sandbox.imageBytes, one per ${BYTES_PER_FILE} bytes)`,
    disk: `so much that less than ${minFreeBytes} bytes were free on the disk of ${cacheDir} (sandbox.minFreeBytes)`,
  }[reason];
  return new RolloutError('ImageTooLarge', `${file} had ${why}; what it had is removed`);
}

async function copyTo(image: string, out: string): Promise<void> {
  const temporary = `${out}.${process.pid}.new`;
  try {
    await mkdir(path.dirname(out), { recursive: true });
    await copyFile(image, temporary, constants.COPYFILE_FICLONE);
    await rename(temporary, out);
  } catch (error) {
    await rm(temporary, { force: true });
    throw new RolloutError('ImageBuildFailed', `${out}: ${messageOf(error)}`, { cause: error });
  }
}

function byLine(onLine: (line: string) => void): (text: string) => void {
  let rest = '';
  return (text) => {
    const lines = (rest + text).split(/\r?\n|\r/);
    rest = lines.pop() ?? '';
    for (const line of lines) onLine(line);
  };
}
