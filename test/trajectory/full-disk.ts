/** Run by store.test.ts on a file system of 64 KiB: fills the store and prints what it says. */
import { TrajectoryStore } from '../../activities/trajectory/store.ts';

const store = new TrajectoryStore(process.argv[2] as string);
const key = { rolloutId: 'full', workflowRunId: 'run', attempt: 1 };
const begin = {
  kind: 'begin' as const,
  promptIds: Array.from({ length: 50_000 }, (_, id) => id),
  messages: [],
  tools: [],
  model: { name: 'm', model_hash: 'a', tokenizer_hash: 'b', template_hash: 'c' },
};
const said = await store.putLedger(key, [begin]).then(
  () => ({ type: 'none', message: '' }),
  (error) => ({ type: error.type, message: error.message }),
);
console.log(JSON.stringify({ ...said, kept: (await store.getLedger(key)) !== undefined }));
