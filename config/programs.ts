import { accessSync, constants, statSync } from 'node:fs';
import path from 'node:path';
import type { Config } from './load.ts';

/** The first of `names` that is an executable file on PATH, as an absolute path; '' if there is none. */
export function findProgram(names: readonly string[], searchPath = process.env.PATH ?? ''): string {
  const folders = searchPath.split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  for (const name of names) {
    for (const folder of folders) {
      const file = path.join(folder, name);
      if (isProgram(file)) return file;
    }
  }
  return '';
}

/** The apptainer or singularity program that the configuration names or PATH has; '' if there is none. */
export function apptainerProgram(config: Config): string {
  return config.sandbox.apptainer ?? findProgram(['apptainer', 'singularity']);
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false; // not there, or not for us
  }
}
