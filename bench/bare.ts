import { fileURLToPath } from 'node:url';
import { NativeConnection, Runtime, Worker } from '@temporalio/worker';
import { announceReady, runUntilStopped } from '../workers/process.ts';

/** Queues of the bare workflow's three activities, as many as a rollout has stages. */
const QUEUES = ['bare-a', 'bare-b', 'bare-c'];

/** A worker process for the bare workflow: `bare.ts <address>`. What it does is nothing, on three queues. */
async function main(address: string): Promise<void> {
  Runtime.install({ shutdownSignals: [] });
  const connection = await NativeConnection.connect({ address });
  const workflowsPath = fileURLToPath(new URL('./bare-workflow.ts', import.meta.url));
  const workers = [
    await Worker.create({
      connection,
      taskQueue: 'bare',
      workflowsPath,
      maxConcurrentWorkflowTaskExecutions: 100,
    }),
  ];
  for (const taskQueue of QUEUES) {
    const activities = { nothing: async (given: string) => given };
    workers.push(
      await Worker.create({ connection, taskQueue, activities, maxConcurrentActivityTaskExecutions: 512 }),
    );
  }
  announceReady();
  await runUntilStopped(workers, 0);
  await connection.close();
  process.exit(0);
}

await main(process.argv[2] as string);
