import { Context } from '@temporalio/activity';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import type { LedgerLine, LedgerRecord } from '../contracts/ledger.ts';
import type { ReleaseReceipt, SandboxInfo } from '../contracts/sandbox.ts';
import { STAGE_STARTED_SIGNAL, STAGE_WAITS_SIGNAL, type StageStartedSignal } from '../contracts/signals.ts';
import {
  MOST_WAITING_SECONDS,
  type RunActivities,
  type RunInput,
  type RunPosition,
  type RunReport,
} from '../contracts/stages.ts';
import type { ToolCall, ToolResult } from '../contracts/tools.ts';
import { Agent, type LoopEnd, type Policy } from './agent/agent.ts';
import { LedgerWriter } from './agent/ledger-writer.ts';
import type { ToolCallParser } from './agent/parsers/parser.ts';
import { endOfStop, StopSwitch } from './agent/stop.ts';
import { ProgramAgent, type ProgramEnd } from './endpoint/program-agent.ts';
import { atEdge } from './errors.ts';
import { handOver } from './hand-over.ts';
import { callHandler } from './handlers/call.ts';
import { checkedPrompt } from './handlers/checked.ts';
import type { HandlerRegistry } from './handlers/registry.ts';
import { withHeartbeat } from './heartbeat.ts';
import { RunClock } from './run-clock.ts';
import { type BoundSandbox, bindSandbox } from './sandbox/bound.ts';
import type { SandboxClient } from './sandbox/client.ts';
import { openTools, type Tool } from './tools/tool.ts';
import type { AttemptKey, TrajectoryStore } from './trajectory/store.ts';
import { turnsIn } from './trajectory/turns.ts';
import { versionRange } from './trajectory/versions.ts';
import { watchForStops } from './watch.ts';

/** Seconds beyond its own timeout after which a tool that has not returned is left. */
const TOOL_GRACE_SECONDS = 60;
/**
 * Milliseconds of work after which the workflow is told of it, at a quarter of the time that is left at the latest: each
 * signal costs it a task of its own, and until then this worker's clock is enough.
 */
const ANNOUNCE_WORK_MS = 30_000;
/** Milliseconds of waiting that the workflow's clock may take for work. */
const ANNOUNCE_WAIT_MS = 5000;

/** What a policy is opened with. */
export interface OpenPolicy {
  readonly signal: AbortSignal;
  /** Servers with this label sample it; `policy` if absent. */
  readonly label?: string;
  /** Told when it begins to wait because there is no server that could sample, and when it goes on. */
  readonly onWaiting?: (waiting: boolean) => void;
  /** Told the lowest policy version that is still wanted: as soon as it is known, and whenever it rises. */
  readonly onFloor?: (floor: number) => void;
}

/** Gives a rollout a server to sample from. */
export interface PolicySource {
  /** Waits while there is no server. @throws RolloutError LlmUnreachable, LlmUnsuitable */
  open(rolloutId: string, options: OpenPolicy): Promise<Policy & { close(): void }>;
}

export interface RunDependencies {
  readonly handlers: HandlerRegistry;
  readonly sandboxes: SandboxClient;
  readonly policies: PolicySource;
  readonly parser: ToolCallParser;
  readonly store: TrajectoryStore;
}

/** The run stage: the agent works in its sandbox until it is done, a limit is reached, or it is stopped. */
export function makeRunActivities(dependencies: RunDependencies): RunActivities {
  return {
    run: (input) => {
      const run = new Run(dependencies, input);
      const position = () => run.position;
      return atEdge('Internal', () => withHeartbeat(position, (context) => run.execute(context)), position);
    },
  };
}

class Run {
  private reached = { turn: 0, tokens: 0 };
  private readonly clock: RunClock;
  private announced: Promise<void> = Promise.resolve();
  /** The lowest policy version that is still wanted. */
  private floor = 0;
  private readonly stop = new StopSwitch();
  /** Requests that are under way, or were when the run was stopped. */
  private generating = 0;
  /** From the stop to the close of the request that was under way. */
  private llmMs: number | undefined;
  private readonly deps: RunDependencies;
  private readonly input: RunInput;

  constructor(deps: RunDependencies, input: RunInput) {
    this.deps = deps;
    this.input = input;
    const { remainingMs = input.request.deadlines.runSeconds * 1000 } = input;
    this.clock = new RunClock({
      // The workflow keeps the same time; this one also holds while Temporal is away.
      budgetMs: remainingMs,
      announceWorkMs: Math.min(ANNOUNCE_WORK_MS, remainingMs / 4),
      announceWaitMs: ANNOUNCE_WAIT_MS,
      mostWaitingMs: MOST_WAITING_SECONDS * 1000,
      expired: () => this.stop.throw({ kind: 'deadline' }),
      // Another entry waits on: the server's own limit on this one must not end a run that has time left.
      waitedEnough: () => this.stop.throw({ kind: 'shutdown' }),
      announce: (runs, workedMs) => this.announce(runs, workedMs),
    });
    if (remainingMs <= 0) this.stop.throw({ kind: 'deadline' });
    this.stop.generation.addEventListener('abort', () => this.clock.stop());
  }

  async execute(context: Context): Promise<RunReport> {
    try {
      return await this.enter(context);
    } finally {
      this.clock.stop();
    }
  }

  private async enter(context: Context): Promise<RunReport> {
    const { sandboxes } = this.deps;
    const { attempt, request } = this.input;
    const workflowRunId = context.info.workflowExecution?.runId as string;
    const key = { rolloutId: request.rolloutId, workflowRunId, attempt };
    const attached = await this.attach(key);
    if (!attached) return this.reportFinished(key);
    const { info, ledger: recorded } = attached;
    const done = new AbortController();
    const unwatch = watchForStops(this.stop, { context, sandboxes, info, done: done.signal });
    try {
      const ledger = new LedgerWriter(
        recorded.map((line: LedgerLine) => line.record),
        (seq, record) => sandboxes.appendLedger(info.sandboxId, { fence: info.fence, seq, record }),
      );
      const { end, answer } = await this.runAgent(info, ledger).catch((error) => ({
        end: this.endBeforeAgent(error, ledger),
        answer: null,
      }));
      if (end === 'paused' || end === 'shutdown') return this.report(key, ledger.records, end);
      const finished = { task: request.task, key, info, ledger, end, returned: answer };
      return this.report(key, ledger.records, end, await handOver(this.deps, finished));
    } finally {
      done.abort();
      await unwatch;
    }
  }

  /** Where the run is and for how long it has worked, as its heartbeats and failures tell the workflow. */
  get position(): RunPosition {
    return { ...this.reached, ms: this.clock.workedMs };
  }

  /** Tells the workflow whether the run works or waits, one word after the other; one soon over tells by its report. */
  private announce(runs: boolean, elapsedMs: number): void {
    const { attempt, entry = 1 } = this.input;
    const context = Context.current();
    const { workflowId, runId } = context.info.workflowExecution as { workflowId: string; runId: string };
    const signal: StageStartedSignal = { attempt, entry, elapsedMs };
    this.announced = this.announced
      .then(() =>
        context.client.workflow
          .getHandle(workflowId, runId)
          .signal(runs ? STAGE_STARTED_SIGNAL : STAGE_WAITS_SIGNAL, signal),
      )
      // Not heard, the workflow's clock only misses what this worker's own still counts.
      .catch((error) =>
        context.log.warn('start or waiting not announced', { runs, problem: messageOf(error) }),
      );
  }

  /** Takes the sandbox over; undefined if it is gone. */
  private async attach({ workflowRunId, attempt }: AttemptKey) {
    try {
      const { placement, entry = 1 } = this.input;
      return await this.deps.sandboxes.attach(placement.sandboxId, { workflowRunId, attempt, entry });
    } catch (error) {
      if (error instanceof RolloutError && error.type === 'SandboxLost') return undefined;
      throw error;
    }
  }

  /**
   * The report of a run whose worker died after it had handed everything over.
   * @throws RolloutError SandboxLost if it had not.
   */
  private async reportFinished(key: AttemptKey): Promise<RunReport> {
    const records = await this.deps.store.getLedger(key);
    const end = records?.at(-1);
    if (!records || end?.kind !== 'end') {
      throw new RolloutError('SandboxLost', `sandbox ${this.input.placement.sandboxId} is gone`);
    }
    return this.report(key, records, end.ended);
  }

  private async runAgent(info: SandboxInfo, ledger: LedgerWriter): Promise<ProgramEnd> {
    const { handlers, policies, parser, sandboxes } = this.deps;
    const { request } = this.input;
    const { handler, data } = handlers.open(request.task);
    const policy = await policies.open(request.rolloutId, {
      signal: this.stop.generation,
      ...(request.serverLabel === undefined ? {} : { label: request.serverLabel }),
      onWaiting: (waiting) => this.clock.wait(waiting),
      onFloor: (floor) => {
        this.floor = floor;
        this.stopIfStale(ledger);
      },
    });
    const common = {
      parser,
      policy: this.observed(policy),
      sampling: request.sampling,
      limits: request.limits,
      ledger,
      stop: this.stop,
      progress: (turn: number, tokens: number) => {
        this.reached = { turn, tokens };
        this.stopIfStale(ledger);
      },
    };
    try {
      const { run } = handler;
      if (run) {
        const task = data;
        return await new ProgramAgent({
          ...common,
          sandboxes,
          info,
          run: (sandbox, endpoint, signal) =>
            // The run's own clock bounds it: active time, which stops while there is no server.
            callHandler('run', { signal, seconds: Infinity }, () =>
              run.call(handler, { task, sandbox, endpoint, signal }),
            ),
        }).run();
      }
      const sandbox = bindSandbox(sandboxes, info, this.stop.signal);
      const agent = new Agent({
        ...common,
        prompt: checkedPrompt(await this.fromHandler('prompt', () => handler.prompt?.(data))),
        tools: await this.fromHandler('tools', () => openTools(handler.tools?.(data) ?? [], sandbox)),
        runTool: (tool, call) => this.runTool(sandbox, tool, call),
      });
      return { end: await agent.run(), answer: null };
    } finally {
      policy.close();
    }
  }

  /** Ends a run with a token that is older than is wanted. */
  private stopIfStale({ records }: LedgerWriter): void {
    const oldest = versionRange(records)?.[0];
    if (oldest !== undefined && oldest < this.floor) this.stop.throw({ kind: 'cancel', reason: 'stale' });
  }

  /**
   * A stop before the agent's first record: its prompt and its tools are the handler's to give in time.
   * @throws what the stop means, or the error itself if there was no stop.
   */
  private endBeforeAgent(error: unknown, ledger: LedgerWriter): LoopEnd {
    const { cause, pausing } = this.stop;
    if (!cause && pausing) return 'paused';
    if (!cause) throw error;
    if (cause.kind === 'deadline' && ledger.records.length === 0) {
      const { runSeconds } = this.input.request.deadlines;
      throw new RolloutError(
        'StageDeadline',
        `the agent had no prompt within the run deadline of ${runSeconds} s`,
      );
    }
    return endOfStop(cause);
  }

  /** The policy, with a note of whether a request is under way: a receipt says if it had to be aborted. */
  private observed(policy: Policy): Policy {
    const sample = policy.generate.bind(policy);
    const generate: Policy['generate'] = async (request, signal) => {
      this.generating++;
      const generated = await sample(request, signal);
      if (generated.finish !== 'abort' || !this.stop.generation.aborted) this.generating--;
      else this.llmMs = this.stop.sinceMs;
      return generated;
    };
    return Object.assign(policy, { generate });
  }

  private async runTool(sandbox: BoundSandbox, tool: Tool, call: ToolCall): Promise<ToolResult> {
    const started = Date.now();
    const { toolTimeoutSeconds } = this.input.request.limits;
    const timeoutMs = Math.ceil(toolTimeoutSeconds * 1000);
    const outcome = await this.fromHandler(
      `tool ${call.tool}`,
      () => tool.run(call.arguments, { sandbox, callId: call.callId, timeoutMs }),
      toolTimeoutSeconds + TOOL_GRACE_SECONDS,
    );
    return { callId: call.callId, tool: call.tool, ...outcome, ms: Date.now() - started };
  }

  /** Calls a function of the handler for as long as nothing stops the run, which its own clock does. */
  private fromHandler<R>(what: string, work: () => R | Promise<R>, seconds = Infinity): Promise<R> {
    return callHandler(what, { signal: this.stop.signal, seconds }, work);
  }

  private report(
    { workflowRunId }: AttemptKey,
    records: readonly LedgerRecord[],
    end: LoopEnd,
    release?: ReleaseReceipt,
  ): RunReport {
    const sampled = records.filter((record) => record.kind === 'sampled');
    const cause = this.stop.cause;
    return {
      ended: end,
      ledgerRunId: workflowRunId,
      cancel:
        end === 'aborted'
          ? {
              reason: cause?.kind === 'cancel' ? cause.reason : 'user',
              llmAborted: this.generating > 0,
              turn: this.reached.turn,
              ms: this.stop.sinceMs,
              ...(this.llmMs === undefined ? {} : { llmMs: this.llmMs }),
            }
          : null,
      turns: turnsIn(records),
      tokens: sampled.reduce((total, record) => total + record.ids.length, 0),
      policyVersions: versionRange(records),
      processesKilled: release?.processesKilled ?? 0,
      ...(release ? { released: { killMs: release.killMs ?? null, ms: release.ms } } : {}),
      ms: this.position.ms,
    };
  }
}
