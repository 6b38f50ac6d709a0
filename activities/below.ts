import path from 'node:path';

/** Whether an absolute path lies below a folder, by its words alone: resolve links first where they matter. */
export function isBelow(place: string, folder: string): boolean {
  const from = path.relative(folder, place);
  return from !== '' && from !== '..' && !from.startsWith(`..${path.sep}`);
}
