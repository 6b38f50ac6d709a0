import { z } from 'zod';
import { messageOf } from '../../contracts/failures.ts';
import { SandboxBackendName } from '../../contracts/sandbox.ts';
import { makeLogger } from '../log.ts';
import { announceReady } from '../process.ts';
import { startSandboxHost } from './server.ts';

/** What the process is told on its command line, as JSON. */
const Options = z.object({
  stateDir: z.string(),
  backend: SandboxBackendName,
  graderCapacity: z.int().min(1),
  bwrapPath: z.string(),
  apptainerPath: z.string().optional(),
  image: z.string().optional(),
});

/** Entry of a sandbox host that serves graders alone, without Temporal: it ends with the process that started it. */
async function main(): Promise<void> {
  const options = Options.parse(JSON.parse(process.argv[2] ?? '{}'));
  const logger = makeLogger('sandboxHost', {
    log: { level: 'warn', levels: {} },
    derived: { host: 'grading' },
  });
  const server = await startSandboxHost({ ...options, host: 'grading', capacity: 1, logger });
  const told = new Promise<void>((resolve) => {
    process.once('disconnect', resolve);
    process.once('SIGTERM', resolve);
  });
  process.on('SIGINT', () => {}); // of the terminal: for the one that started this
  announceReady();
  await told;
  await server.close();
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    process.send?.({ problem: messageOf(error) });
    process.exit(1);
  },
);
