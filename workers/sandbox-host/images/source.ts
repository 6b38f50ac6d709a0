import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat, readdir, readFile, readlink, stat } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { checkBlobs } from './blobs.ts';

/** What an image is built from. */
export interface ImageSource {
  readonly kind: 'definition' | 'oci-archive' | 'docker-archive' | 'oci-layout' | 'folder';
  /** Absolute path of the host. */
  readonly file: string;
  /** SHA-256 over everything local that goes into the image. */
  readonly digest: string;
}

/** Most names of an archive that are looked at. */
const MAX_LISTING_BYTES = 64 * 1024 ** 2;

/**
 * Finds out what `file` is and what is in it.
 * @throws RolloutError InvalidRequest if it is nothing that an image can be built from, or not what it says it is
 */
export async function readSource(file: string): Promise<ImageSource> {
  const absolute = path.resolve(file);
  const kind = await kindOf(absolute);
  await checkImage(kind, absolute);
  const hash = createHash('sha256').update(`${kind}\n`);
  await addTree(hash, absolute);
  if (kind === 'definition') {
    const text = await readFile(absolute, 'utf8');
    for (const reference of localReferences(text)) {
      const target = path.resolve(path.dirname(absolute), reference);
      await checkImage(await kindOf(target).catch(() => null), target);
      hash.update(`reference ${reference}\n`);
      await addTree(hash, target);
    }
  }
  return { kind, file: absolute, digest: hash.digest('hex') };
}

async function checkImage(kind: ImageSource['kind'] | null, file: string): Promise<void> {
  if (kind === 'oci-archive' || kind === 'oci-layout') await checkBlobs(kind, file);
}

/** The source as Apptainer takes it. */
export function buildSpec({ kind, file }: ImageSource): string {
  if (kind === 'oci-layout') return `oci:${file}`;
  return kind === 'oci-archive' || kind === 'docker-archive' ? `${kind}:${file}` : file;
}

async function kindOf(file: string): Promise<ImageSource['kind']> {
  const info = await stat(file).catch((error: unknown) => {
    throw new RolloutError('InvalidRequest', `${file}: ${messageOf(error)}`, { cause: error });
  });
  if (info.isDirectory()) {
    return (await exists(path.join(file, 'oci-layout'))) ? 'oci-layout' : 'folder';
  }
  const head = await firstBytes(file, 64 * 1024);
  if (/^\s*(#.*\n\s*)*bootstrap\s*:/i.test(head.toString('latin1'))) return 'definition';
  const names = await archiveNames(file);
  if (names.has('oci-layout')) return 'oci-archive';
  if (names.has('manifest.json')) return 'docker-archive';
  throw new RolloutError(
    'InvalidRequest',
    `${file} is no definition (it does not begin with "Bootstrap:"), no OCI or Docker archive and no folder`,
  );
}

async function archiveNames(file: string): Promise<Set<string>> {
  try {
    const { stdout } = await promisify(execFile)('tar', ['-tf', file], { maxBuffer: MAX_LISTING_BYTES });
    return new Set(stdout.split('\n').map((name) => name.replace(/^\.\//, '')));
  } catch {
    return new Set(); // no archive: the caller says what is expected
  }
}

/** Files and folders of this machine that a definition names: its base, and what it copies in. */
export function localReferences(definition: string): string[] {
  const found: string[] = [];
  let section = '';
  let bootstrap = '';
  for (const raw of definition.split('\n')) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const [, name] = /^%(\S+.*)/.exec(line) ?? [];
    const [, key = '', value = ''] = /^(\w+)\s*:\s*(.*)$/.exec(line) ?? [];
    if (/^bootstrap$/i.test(key)) {
      [section, bootstrap] = ['', value];
    } else if (name !== undefined) {
      section = name;
    } else if (section === '' && /^from$/i.test(key)) {
      if (/^(localimage|oci-archive|docker-archive|oci)$/.test(bootstrap))
        found.push(value.split(':')[0] ?? '');
    } else if (section === 'files') {
      const [source = ''] = line.split(/\s+/);
      // Of a pattern, the folder that it is about.
      found.push(/[*?[]/.test(source) ? source.slice(0, source.search(/[^/]*[*?[]/)) || '.' : source);
    }
  }
  return found.filter((reference) => reference !== '');
}

/** Adds a file, a link or a whole folder; what does not exist counts as such. */
async function addTree(hash: ReturnType<typeof createHash>, file: string, name = ''): Promise<void> {
  const info = await lstat(file).catch(() => null);
  if (!info) {
    hash.update(`${name}\0missing\n`);
    return;
  }
  const mode = (info.mode & 0o7777).toString(8);
  if (info.isSymbolicLink()) {
    hash.update(`${name}\0link ${await readlink(file)}\n`);
    if (name === '') await addTree(hash, path.resolve(path.dirname(file), await readlink(file)), 'target');
  } else if (info.isDirectory()) {
    hash.update(`${name}\0folder ${mode}\n`);
    for (const entry of (await readdir(file)).sort())
      await addTree(hash, path.join(file, entry), `${name}/${entry}`);
  } else if (info.isFile()) {
    hash.update(`${name}\0file ${mode} ${info.size}\n`);
    for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  } else {
    hash.update(`${name}\0special ${info.mode} ${info.rdev}\n`);
  }
}

async function firstBytes(file: string, bytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of createReadStream(file, { end: bytes - 1 })) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  );
}
