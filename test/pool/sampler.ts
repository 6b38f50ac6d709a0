/** Run by lease.test.ts: a run worker's part in a pool as a process of its own, which samples all the time. */
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import { joinPool } from '../../workers/pool/member.ts';
import { sampleOn } from './sampling.ts';
import { configOf } from './support.ts';

const [, , address, pool] = process.argv as [string, string, string, string];
Runtime.install({ logger: new DefaultLogger('ERROR') });
const connection = await NativeConnection.connect({ address });
const part = await joinPool(configOf(address, pool), { connection });
for (const worker of part.workers) void worker.run();
process.once('disconnect', () => process.exit(0));
await sampleOn(part.view, 'in-a-process', new AbortController().signal);
