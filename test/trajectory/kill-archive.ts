// For archive.test.ts: moves what is old in a store to a folder, and is killed in the middle: `<store> <folder> <puts>`.
import { Archive, Folder, type Objects } from '../../activities/trajectory/archive.ts';
import { moveOld } from '../../activities/trajectory/move-old.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { options } from './archive.ts';

const [folder, to, puts] = process.argv.slice(2) as [string, string, string];
const inner = new Folder(to);
let left = Number(puts);
const objects: Objects = {
  place: inner.place,
  get: (name) => inner.get(name),
  put: async (name, bytes) => {
    if (left-- === 0) process.kill(process.pid, 'SIGKILL');
    await inner.put(name, bytes);
  },
};
await moveOld(new TrajectoryStore(folder), new Archive(objects), options());
