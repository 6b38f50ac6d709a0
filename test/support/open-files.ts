import { readdirSync, readlinkSync } from 'node:fs';

/** Whether this process has a file open. */
export function isOpen(file: string): boolean {
  return readdirSync('/proc/self/fd').some((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === file;
    } catch {
      return false; // the one that the folder was read by
    }
  });
}
