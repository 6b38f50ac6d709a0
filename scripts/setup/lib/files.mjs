import { createHash, randomBytes } from 'node:crypto';
import { accessSync, constants, readFileSync, statSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';

/** SHA-256 of several texts or buffers, in hexadecimal; their borders count. */
export function hashOf(...parts) {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(`${part.length}:`).update(part);
  return hash.digest('hex');
}

/** A file's text, or undefined when there is none. */
export function readIfThere(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
    throw error;
  }
}

/** Parsed JSON of a file, or undefined when there is none or it was cut short. */
export function readJsonIfThere(file) {
  const text = readIfThere(file);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Writes a file so that others see the old text or the new one, never a part. */
export async function writeAtomically(file, text) {
  await mkdir(path.dirname(file), { recursive: true });
  const temporary = temporaryName(file);
  try {
    await writeFile(temporary, text);
    await rename(temporary, file);
  } finally {
    await rm(temporary, { force: true });
  }
}

/** A name beside `file`, on the same file system, that no other process uses. */
export function temporaryName(file) {
  return `${file}.${process.pid}.${randomBytes(4).toString('hex')}.tmp`;
}

/** Whether `file` is a regular file that this user may run. */
export function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/** Every program of that name on a PATH, in its order, without repeats. */
export function findOnPath(name, searchPath = '') {
  const found = searchPath
    .split(path.delimiter)
    .filter((folder) => path.isAbsolute(folder))
    .map((folder) => path.join(folder, name))
    .filter(isExecutable);
  return [...new Set(found)];
}
