/**
 * Run by fencing.test.ts: a run worker that stands still, as a whole process, exactly between its look at what
 * it may do and doing it. Each rollout waits at the place that its id names; when all have come there, the
 * process stops itself. Woken up, each does what it was about to do and says what became of it.
 */
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import { type AttemptKey, TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { AppendLedger, ShellRequest } from '../../contracts/sandbox.ts';
import type { RunInput } from '../../contracts/stages.ts';
import { sandboxHostAddress } from '../../workers/sandbox-host/address.ts';
import { makeRunWorker } from './support.ts';

const [, , address, stateDir, storeFolder, count] = process.argv as [
  string,
  string,
  string,
  string,
  string,
  string,
];

let waiting = 0;
let wake!: () => void;
const woken = new Promise<void>((resolve) => {
  wake = resolve;
});
/** Rollout by sandbox, as the run stage is told. */
const rollouts = new Map<string, string>();

async function standStill<R>(rolloutId: string, go: () => Promise<R>): Promise<R> {
  if (++waiting === Number(count)) {
    process.kill(process.pid, 'SIGSTOP');
    wake();
  }
  await woken;
  const say = (what: string) => process.send?.({ rolloutId, act: what });
  return go().then(
    (result) => {
      say('done');
      return result;
    },
    (error: Error & { type?: string }) => {
      say(`${error.type}: ${error.message}`);
      throw error;
    },
  );
}

const isAt = (sandboxId: string, place: string) => rollouts.get(sandboxId)?.endsWith(place) === true;

class Sandboxes extends SandboxClient {
  override appendLedger(sandboxId: string, request: AppendLedger, signal?: AbortSignal): Promise<void> {
    const go = () => super.appendLedger(sandboxId, request, signal);
    const { kind, turn } = request.record as LedgerRecord & { turn?: number };
    const here = isAt(sandboxId, `at-${kind}`) && (turn === undefined || turn === 1);
    return here ? standStill(rollouts.get(sandboxId) as string, go) : go();
  }

  override shell(sandboxId: string, name: string, request: ShellRequest, signal?: AbortSignal) {
    const here = isAt(sandboxId, 'at-call') && request.callId === '1.0';
    // Without the signal: the request is to arrive, whatever this process hears in the same moment.
    const go = () => super.shell(sandboxId, name, request, here ? undefined : signal);
    return here ? standStill(rollouts.get(sandboxId) as string, go) : go();
  }
}

class Store extends TrajectoryStore {
  override putLedger(key: AttemptKey, records: readonly LedgerRecord[]): Promise<void> {
    const go = () => super.putLedger(key, records);
    return key.rolloutId.endsWith('at-store') ? standStill(key.rolloutId, go) : go();
  }
}

Runtime.install({ logger: new DefaultLogger('ERROR') });
const connection = await NativeConnection.connect({ address });
const worker = await makeRunWorker(
  connection,
  new Sandboxes(sandboxHostAddress(stateDir)),
  new Store(storeFolder),
  {},
  (run) => async (input: RunInput) => {
    const { rolloutId } = input.request;
    rollouts.set(input.placement.sandboxId, rolloutId);
    const end = await run(input).then(
      ({ ended }) => ended,
      (error: { type?: string }) => error.type ?? String(error),
    );
    process.send?.({ rolloutId, end });
    return { ended: end };
  },
);
process.once('disconnect', () => process.exit(0));
await worker.run();
