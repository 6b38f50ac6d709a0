import { RolloutError } from '../contracts/failures.ts';
import type { ReleaseReceipt, SandboxInfo } from '../contracts/sandbox.ts';
import type { AgentEnd } from '../contracts/stages.ts';
import type { Task } from '../contracts/task.ts';
import type { LedgerWriter } from './agent/ledger-writer.ts';
import { callHandler } from './handlers/call.ts';
import { checkedOutcome, usualOutcome } from './handlers/checked.ts';
import type { AgentHandler } from './handlers/handler.ts';
import type { HandlerRegistry } from './handlers/registry.ts';
import { bindSandbox } from './sandbox/bound.ts';
import type { SandboxClient } from './sandbox/client.ts';
import { finalAnswer } from './tools/finish.ts';
import { messagesOf } from './trajectory/assemble.ts';
import type { AttemptKey, TrajectoryStore } from './trajectory/store.ts';

/** Seconds that a handler may take to take the outcome from a finished run. */
const OUTCOME_SECONDS = 60;
/** Characters of what a program said that a failure shows. */
const LAST_WORDS = 1000;

/** What a run is handed over with. */
export interface HandOverDependencies {
  readonly handlers: HandlerRegistry;
  readonly sandboxes: SandboxClient;
  readonly store: TrajectoryStore;
}

/** A run that has come to its end. */
export interface FinishedRun {
  readonly task: Task;
  readonly key: AttemptKey;
  readonly info: SandboxInfo;
  readonly ledger: LedgerWriter;
  readonly end: AgentEnd;
  /** What the handler's `run` returned, if it has one. */
  readonly returned: string | null;
}

/**
 * Takes what the grader needs, confirms that the agent's processes are dead, copies the ledger to the store and
 * releases the sandbox. Idempotent: a run that is scheduled again repeats what is missing.
 * @returns what the release said
 */
export async function handOver(
  { handlers, sandboxes, store }: HandOverDependencies,
  run: FinishedRun,
): Promise<ReleaseReceipt> {
  const { info, ledger, end, key } = run;
  const { handler, data } = handlers.open(run.task);
  if (handler.run && end !== 'aborted') await endProgram(sandboxes, run);
  if (ledger.records.length > 0 && ledger.records.at(-1)?.kind !== 'end') {
    const taken = end === 'aborted' ? {} : await takeOutcome(sandboxes, handler, data, run);
    await ledger.append({ kind: 'end', ended: end, outcome: checkedOutcome(taken) });
  }
  if (ledger.records.length > 0) await store.putLedger(key, ledger.records);
  return sandboxes.release(info.sandboxId);
}

/** An agent's own program is dead before its outcome is taken. @throws RolloutError HandlerFailed if it asked nothing */
async function endProgram(sandboxes: SandboxClient, { info, ledger, returned }: FinishedRun): Promise<void> {
  await sandboxes.kill(info.sandboxId, info.fence);
  if (ledger.records.length > 0) return;
  const words = returned?.trim().slice(-LAST_WORDS) || 'nothing';
  const what = `the agent’s program has asked the model nothing; it said: ${words}`;
  throw new RolloutError('HandlerFailed', what);
}

function takeOutcome(
  sandboxes: SandboxClient,
  handler: AgentHandler,
  task: unknown,
  { info, ledger, returned }: FinishedRun,
): Promise<unknown> {
  const messages = messagesOf(ledger.records);
  const prompt = ledger.records[0]?.kind === 'begin' ? ledger.records[0].messages.length : 0;
  // A worked example in the prompt is nothing that the agent said.
  const own = messages.slice(prompt).filter((message) => message.role === 'assistant');
  const said = own.map((message) => message.content);
  const answer = returned ?? finalAnswer(ledger.records) ?? said.at(-1) ?? null;
  const sandbox = bindSandbox(sandboxes, info, AbortSignal.timeout(OUTCOME_SECONDS * 1000));
  const bounds = { signal: new AbortController().signal, seconds: OUTCOME_SECONDS };
  return callHandler(
    'outcome',
    bounds,
    async () => (await handler.outcome?.({ task, sandbox, messages, said, answer })) ?? usualOutcome(answer),
  );
}
