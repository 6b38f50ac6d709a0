import type { z } from 'zod';
import type { HandlerDeadlines } from '../../contracts/deadlines.ts';
import type { SandboxSpec } from '../../contracts/sandbox.ts';
import type { ChatMessage, Reward } from '../../contracts/trajectory.ts';
import type { PythonPrograms } from '../grading/python-pools.ts';
import type { BoundSandbox } from '../sandbox/bound.ts';
import type { EachOptions } from '../sandbox/for-grader.ts';
import type { Tool, ToolServer } from '../tools/tool.ts';

/** What `check` may use. */
export interface CheckContext<T> {
  readonly task: T;
  readonly python: PythonPrograms;
  readonly signal?: AbortSignal;
}

/** What `init` may use. */
export interface InitContext<T> {
  readonly task: T;
  readonly sandbox: BoundSandbox;
  readonly signal: AbortSignal;
}

/** The policy as an OpenAI-compatible service inside the sandbox, and the only way out of it. */
export interface AgentEndpoint {
  /** Unix socket, as seen inside. */
  readonly socketPath: string;
  /**
   * Base URL (`http://127.0.0.1:<port>/v1`) on the sandbox's own loopback, for clients that know no sockets: a
   * small forwarder is started inside, which needs a `python3` there. Asked again, it is the same.
   */
  baseUrl(): Promise<string>;
}

/** What `run` may use. */
export interface RunContext<T> {
  readonly task: T;
  readonly sandbox: BoundSandbox;
  readonly endpoint: AgentEndpoint;
  readonly signal: AbortSignal;
}

/** What `outcome` may use: the sandbox as the agent left it, and all that was said. */
export interface OutcomeContext<T> {
  readonly task: T;
  readonly sandbox: BoundSandbox;
  readonly messages: readonly ChatMessage[];
  /** What the agent said, turn by turn; nothing of the prompt. */
  readonly said: readonly string[];
  /** What the agent gave to `finish` or `run` returned, else the last thing it said. */
  readonly answer: string | null;
}

/** What `recorded` may use: an answer that was given without a rollout of this service. */
export interface RecordedContext<T> {
  readonly task: T;
  readonly response: string;
  readonly messages: readonly ChatMessage[];
}

/** A model that decides what no program can. */
export interface Judge {
  /** Its whole reply. @throws RolloutError of what failed: never a verdict */
  ask(messages: readonly ChatMessage[], signal: AbortSignal): Promise<string>;
}

/** What `evaluate` may use. The agent's sandbox is gone by then. */
export interface EvaluateContext<T> {
  readonly task: T;
  /** What `outcome` returned. */
  readonly outcome: Readonly<Record<string, unknown>>;
  readonly messages: readonly ChatMessage[];
  /**
   * A fresh sandbox that the agent never touched, for graders that run code; it is gone when `evaluate` returns.
   * Without a spec, it is made as the agent's was. Asked for again, the one before ends.
   */
  sandbox(spec?: Partial<SandboxSpec>): Promise<BoundSandbox>;
  /**
   * Does `work` for each item in a fresh sandbox of its own, several at once; the results are in the order of the items.
   * Hold no `sandbox()` meanwhile: it takes the room that these wait for.
   */
  each<I, R>(
    items: readonly I[],
    work: (sandbox: BoundSandbox, item: I) => Promise<R>,
    options?: EachOptions<R>,
  ): Promise<R[]>;
  /** Warm Python programs, for what only Python has a library for. */
  readonly python: PythonPrograms;
  /** Absent where no judge model is configured. */
  readonly judge?: Judge;
  /** How long this may take; what the policy made hang must be told from a grader that hangs by then. */
  readonly seconds: number;
  readonly signal: AbortSignal;
}

/**
 * One kind of task. A handler says how a task is posed, what the agent may use, and how the outcome is
 * graded; the service does the rest. One file with a default export of this shape is a new task type.
 */
export interface AgentHandler<T = unknown> {
  /** Name in requests, search attributes and metrics. */
  readonly name: string;
  readonly description: string;
  /** Checks a task's data; errors name the field. Parse, don't transform to anything JSON can't carry. */
  readonly schema: z.ZodType<T>;
  /** Data of one task, for the documentation. */
  readonly example: Record<string, unknown>;
  /**
   * What of a task the schema can't check, such as a gold answer that can't be read; asked where tasks are loaded and
   * at init. Throw a RolloutError InvalidTask that names the field.
   */
  check?(context: CheckContext<T>): Promise<void>;
  /** What the sandbox must offer; null if nothing is to run in one. Default: the stock sandbox. */
  sandbox?(task: T): Partial<SandboxSpec> | null;
  /** Seconds that its stages need, where the usual 600 and 60 are not enough; a request or the configuration may say others. */
  deadlines?(task: T): HandlerDeadlines;
  /** Tools the agent may call. */
  tools?(task: T): (Tool | ToolServer)[];
  /** The opening messages; never the gold answer. */
  prompt?(task: T): Promise<ChatMessage[]>;
  /**
   * For an agent that brings its own loop, in place of `tools` and `prompt`: starts its program in the sandbox,
   * waits for its end, and returns its answer. Called anew whenever the run stage is entered again (after a pause
   * or a lost worker) while the program goes on: `sandbox.shell` with a call id finds what it had started.
   */
  run?(context: RunContext<T>): Promise<string | null>;
  /** Prepares the sandbox. Default: nothing to prepare. */
  init?(context: InitContext<T>): Promise<void>;
  /** What the grader needs of the finished run, a few kilobytes of JSON. Default: `{answer}`. */
  outcome?(context: OutcomeContext<T>): Promise<Record<string, unknown>>;
  /**
   * The outcome that a recorded response stands for (`rollouts grade`). Default: that of an agent that said it and did
   * nothing else; a handler whose `outcome` looks into the sandbox needs its own.
   */
  recorded?(context: RecordedContext<T>): Promise<Record<string, unknown>>;
  /** Grades. Throwing means that the grader failed, which is never a reward. */
  evaluate(context: EvaluateContext<T>): Promise<Reward>;
}

/** Types a handler by its schema; returns it unchanged. */
export function defineHandler<T>(handler: AgentHandler<T>): AgentHandler<T> {
  return handler;
}
