/** Stage of a rollout in which something happened. `queued` is everything before init begins. */
export type Stage = 'queued' | 'init' | 'run' | 'paused' | 'evaluate';

/**
 * Whose fault a failure is. What the policy caused is an outcome and is graded;
 * what the infrastructure caused is a failure and never a reward.
 */
export type FailureCause = 'request' | 'infrastructure';

interface FailureKind {
  readonly stage: Stage | 'any';
  readonly cause: FailureCause;
  /**
   * What the workflow may do about it: `stage` tries the stage again in the same sandbox, `rollout` starts
   * again from init as a new attempt, `both` does the first and, if that does not help, the second, `never`
   * ends the rollout as failed.
   */
  readonly retry: 'stage' | 'rollout' | 'both' | 'never';
  /** What a person does about it, as one sentence. */
  readonly advice: string;
}

/** Every failure a rollout can end with. The docs' failure table and the retry rules are made from this. */
export const FAILURES = {
  InvalidRequest: {
    stage: 'queued',
    cause: 'request',
    retry: 'never',
    advice: 'Correct the named field of the request and submit it again.',
  },
  InvalidTask: {
    stage: 'any',
    cause: 'request',
    retry: 'never',
    advice: 'Correct the named field of the task; `rollouts handlers` shows the schema.',
  },
  UnknownHandler: {
    stage: 'any',
    cause: 'request',
    retry: 'never',
    advice: 'Use a handler that `rollouts handlers` lists, or start the workers with --handlers.',
  },
  SandboxUnavailable: {
    stage: 'init',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'No isolation works on this host: run `rollouts doctor`, or ask for --sandbox=process knowingly.',
  },
  ImageBuildFailed: {
    stage: 'init',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'The image could not be built: the last lines of the message are the builder’s own.',
  },
  ImageTooLarge: {
    stage: 'init',
    cause: 'request',
    retry: 'never',
    advice:
      'Unpacked, the image passes a bound: make it smaller, or raise the setting that the message names.',
  },
  ProgramMissing: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'Install the named program on the sandbox host, below /usr: it takes diffs or snapshots.',
  },
  SandboxFailed: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'rollout',
    advice: 'The sandbox could not be created or entered: read the sandbox host log for this rollout.',
  },
  SandboxLost: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'rollout',
    advice: 'The sandbox or its host went away; a new attempt starts on a host with room.',
  },
  HostUnreachable: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'both',
    advice: 'The worker cannot reach the sandbox host on its socket: check that the host process runs.',
  },
  HostLost: {
    stage: 'run',
    cause: 'infrastructure',
    retry: 'rollout',
    advice: 'No worker took the run stage on its host in time; a new attempt starts elsewhere.',
  },
  HostDrained: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'rollout',
    advice: 'Its host was drained and its workspace could not be kept; a new attempt starts elsewhere.',
  },
  HandlerFailed: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'The handler threw: the message and stack in the history show where.',
  },
  LlmUnreachable: {
    stage: 'run',
    cause: 'infrastructure',
    retry: 'stage',
    advice: 'No LLM server answered: check the address in the configuration and that the server runs.',
  },
  LlmRejected: {
    stage: 'run',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'The LLM server refused the request: its own words are in the message.',
  },
  LlmInvalidAnswer: {
    stage: 'run',
    cause: 'infrastructure',
    retry: 'stage',
    advice:
      'The LLM server returned tokens or log-probabilities that cannot be trained on: check its version and flags.',
  },
  LlmUnsuitable: {
    stage: 'run',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'The model or its chat template cannot be used token-exactly: the message says why.',
  },
  SearchUnreachable: {
    stage: 'run',
    cause: 'infrastructure',
    retry: 'stage',
    advice: 'The search service did not answer: check workers.searchUrl and that the service runs.',
  },
  FenceRefused: {
    stage: 'any',
    cause: 'infrastructure',
    // Heard only by a workflow that is open: a reset has given it a sandbox of the run before.
    retry: 'rollout',
    advice: 'A newer run of this rollout holds the sandbox; this one had been given up and changed nothing.',
  },
  LedgerFailed: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'both',
    advice: 'The sandbox host could not write its ledger: check space and permissions of its state folder.',
  },
  StoreFailed: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'stage',
    advice: 'The trajectory store could not be written or read: check space and permissions of its folder.',
  },
  StoreCorrupt: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'rollout',
    advice: 'A stored record does not match its checksum: check the disk; the rollout starts again.',
  },
  GraderFailed: {
    stage: 'evaluate',
    cause: 'infrastructure',
    retry: 'stage',
    advice:
      'The grader crashed; the trajectory is kept, ungraded: the message and stack in the history show where.',
  },
  WorkerLost: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'both',
    advice: 'A worker stopped answering (no heartbeat) or was told to end; the stage is scheduled again.',
  },
  PayloadUnreadable: {
    stage: 'any',
    cause: 'infrastructure',
    // Another worker may have the key.
    retry: 'stage',
    advice:
      'A payload in Temporal is encrypted with a key that this process lacks: give every process the same file as temporal.encryptionKeys.',
  },
  StageDeadline: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'The stage took longer than its deadline: raise it in the request or look at what was slow.',
  },
  QueueTimeout: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'No worker took the stage in time: check that workers with this role run and have free slots.',
  },
  Terminated: {
    stage: 'any',
    cause: 'request',
    retry: 'never',
    advice: 'The workflow was terminated from outside; prefer `rollouts cancel`, which leaves a receipt.',
  },
  Internal: {
    stage: 'any',
    cause: 'infrastructure',
    retry: 'never',
    advice: 'A defect of this software: please report it with the history.',
  },
} as const satisfies Record<string, FailureKind>;

/** Stable name of a failure; the `type` of the Temporal ApplicationFailure that carries it. */
export type FailureType = keyof typeof FAILURES;

/** True if `name` is one of {@link FAILURES}. */
export function isFailureType(name: unknown): name is FailureType {
  return typeof name === 'string' && Object.hasOwn(FAILURES, name);
}

/** True if trying the same stage again may help. */
export function helpsInStage(type: FailureType): boolean {
  const { retry } = FAILURES[type];
  return retry === 'stage' || retry === 'both';
}

/** True if beginning again from init, as a new attempt, may help. */
export function helpsInNewAttempt(type: FailureType): boolean {
  const { retry } = FAILURES[type];
  return retry === 'rollout' || retry === 'both';
}

/**
 * An error with a stable type. Everything that can go wrong on purpose is thrown as one of these;
 * anything else that reaches the edge of an activity is `Internal` or, inside a handler, `HandlerFailed`.
 */
export class RolloutError extends Error {
  override readonly name = 'RolloutError';
  readonly type: FailureType;

  constructor(type: FailureType, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.type = type;
  }
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
