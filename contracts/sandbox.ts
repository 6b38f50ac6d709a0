import { z } from 'zod';
import { type LedgerLine, LedgerRecord } from './ledger.ts';
import { CancelReason, RolloutId } from './request.ts';

/** Isolation backends. `process` isolates nothing and is for development only. */
export const SandboxBackendName = z.enum(['bubblewrap', 'apptainer', 'process']);
export type SandboxBackendName = z.infer<typeof SandboxBackendName>;

/** For `refine` of what is handed to the system: paths, arguments, variables. */
export const withoutZero = { error: 'must not hold a zero byte' };
export const isWithoutZero = (text: string): boolean => !text.includes('\0');

/** Most bytes of one argument that Linux takes (MAX_ARG_STRLEN), its closing zero included. */
const MOST_WORD_BYTES = 131_072;
/** Of all arguments: half of what a stack of 8 MiB leaves room for, since environment and wrappers need some. */
const MOST_ARGUMENT_BYTES = 1024 ** 2;

/** A word as the system hands it to a program. */
const ProgramWord = z
  .string()
  .refine(isWithoutZero, withoutZero)
  .refine((word) => Buffer.byteLength(word) < MOST_WORD_BYTES, {
    error: `at most ${MOST_WORD_BYTES - 1} bytes: give longer text on standard input, or in a file`,
  });
/** Variables that a program is given. */
const Environment = z
  .record(z.string(), ProgramWord)
  .refine((environment) => Object.keys(environment).every((name) => /^[^=\0]+$/.test(name)), {
    error: 'the name of a variable has no = and no zero byte, and is not empty',
  });

/** What a sandbox is made by; `none` for a task that runs nothing and has only its ledger on the host. */
export const SandboxKind = z.enum([...SandboxBackendName.options, 'none']);
export type SandboxKind = z.infer<typeof SandboxKind>;

/** Folder of a sandbox that the agent works in, the same on every backend but `process`. */
export const WORKSPACE = '/workspace';

/** Bounds of one sandbox. What hits one is named in the result. */
export const SandboxLimits = z.strictObject({
  /**
   * Bytes of memory of all processes together, with what lies in memory file systems (/tmp, /dev/shm and the
   * home folder).
   */
  memoryBytes: z
    .int()
    .min(1)
    .default(2 * 1024 ** 3),
  /** Processes and threads of the sandbox. */
  processes: z.int().min(4).default(256),
  /** Seconds of processor time per process. */
  cpuSeconds: z.int().min(1).default(600),
  /**
   * Seconds that a command may sleep, all of its time added up in which no process of the sandbox runs or waits for a
   * processor or a disk; as many as it likes if absent.
   */
  idleSeconds: z.number().positive().optional(),
  /** Bytes of any one file written. */
  fileBytes: z
    .int()
    .min(1)
    .default(1024 ** 3),
  /** Bytes on disk of the whole workspace, deleted files that are still open included. */
  diskBytes: z
    .int()
    .min(1)
    .default(8 * 1024 ** 3),
  /** Files and folders in the workspace. */
  diskFiles: z.int().min(1).default(500_000),
  /** Per process. */
  openFiles: z.int().min(16).default(1024),
  /** Bytes that one command may print before it is ended; far fewer are kept. */
  outputBytes: z
    .int()
    .min(1)
    .default(1024 ** 3),
});
export type SandboxLimits = z.infer<typeof SandboxLimits>;

/** A folder or file of the host shown inside, read-only. */
export const SandboxBind = z.object({
  source: z.string().startsWith('/').refine(isWithoutZero, withoutZero),
  target: z.string().startsWith('/').refine(isWithoutZero, withoutZero),
});

/** What a handler wants of its sandbox. There is never a network. */
export const SandboxSpec = z.strictObject({
  /** SIF file, or folder with a root file system, of the host; only apptainer has images. It has bash. */
  image: z.string().startsWith('/').optional(),
  binds: z.array(SandboxBind).default([]),
  /** Environment of everything run inside; nothing of the host's is passed on. */
  environment: Environment.default({}),
  limits: SandboxLimits.prefault({}),
  /** Commands wait for a machine of this class, if given. */
  hardwareClass: z.string().optional(),
});
export type SandboxSpec = z.infer<typeof SandboxSpec>;

/**
 * POST /v1/sandboxes. Idempotent per (rolloutId, workflowRunId, attempt): asked again, it returns the same
 * sandbox under a new fence. A lower attempt than the newest of this rollout is refused (FenceRefused).
 */
export const CreateSandbox = z.object({
  rolloutId: RolloutId,
  workflowRunId: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$/, 'letters, digits and . _ : - only'),
  attempt: z.int().min(1),
  /** Of the rollout, so that a whole batch or group can be stopped at once. */
  batchId: z.string().optional(),
  groupId: z.string().optional(),
  /**
   * `grader`: a fresh one each time, which no agent ever touched, in room of its own: it waits for that. It ends
   * the sandbox that this rollout's grader had before in the same lane, and those of other sessions in all lanes.
   */
  purpose: z.enum(['agent', 'grader']).optional(),
  /** It takes the place of the attempt's former one, whose workspace and ledger were kept and are put into it. */
  resumes: z.boolean().optional(),
  /** Of a grader's sandboxes that stand side by side, which one; 0 if absent. */
  lane: z.int().min(0).max(1000).optional(),
  /** Which call of the grader asks. */
  session: z.string().min(1).max(100).optional(),
  /** Null: nothing will run in it. */
  spec: SandboxSpec.nullable(),
});
export type CreateSandbox = z.infer<typeof CreateSandbox>;

/** A sandbox that exists, as returned by create and attach. */
export const SandboxInfo = z.object({
  sandboxId: z.string(),
  host: z.string(),
  backend: SandboxKind,
  /** Must accompany every call; the newest one issued is the only one accepted. */
  fence: z.int().min(1),
  /** The workspace's path as seen inside. */
  workspace: z.string(),
});
export type SandboxInfo = z.infer<typeof SandboxInfo>;

/** POST /v1/sandboxes/:id/attach: takes the sandbox over; every older fence is refused from then on. */
export const AttachSandbox = z.object({
  workflowRunId: z.string().min(1),
  attempt: z.int().min(1),
  /**
   * Which entry into the run stage takes it over; one that was told to pause before is told at once. 0: none has
   * begun.
   */
  entry: z.int().min(0).default(1),
});
export type AttachSandbox = z.input<typeof AttachSandbox>;

/** GET /v1/sandboxes/:id/ledger, and part of attach: everything recorded so far. */
export const LedgerLines: z.ZodType<LedgerLine[]> = z.array(
  z.object({ seq: z.int(), fence: z.int(), at: z.string(), record: LedgerRecord, hash: z.string() }),
);

/** POST /v1/ledgers/read: what an attempt whose sandbox is gone has recorded on this host; none is no failure. */
export const ReadAttemptLedger = CreateSandbox.pick({ rolloutId: true, workflowRunId: true, attempt: true });
export type ReadAttemptLedger = z.infer<typeof ReadAttemptLedger>;

/** Answer of attach: the sandbox under its new fence, and its ledger. */
export const AttachResult = z.object({ info: SandboxInfo, ledger: LedgerLines });
export type AttachResult = z.infer<typeof AttachResult>;

const FilePath = z.string().min(1).max(4096).refine(isWithoutZero, withoutZero);

/** POST /v1/sandboxes/:id/exec: one program, apart from the shells. */
export const ExecRequest = z.object({
  fence: z.int().min(1),
  argv: z
    .array(ProgramWord)
    .min(1)
    .refine((argv) => argv.reduce((sum, word) => sum + Buffer.byteLength(word), 0) <= MOST_ARGUMENT_BYTES, {
      error: `all together at most ${MOST_ARGUMENT_BYTES} bytes: give longer text on standard input, or in a file`,
    }),
  /** Base64; absent: no standard input. */
  stdin: z.string().optional(),
  cwd: ProgramWord.optional(),
  environment: Environment.default({}),
  timeoutMs: z.int().min(1).max(86_400_000),
  /** Bytes of stdout and of stderr that are kept: half from the head, half from the tail. */
  maxOutputBytes: z
    .int()
    .min(0)
    .max(16 * 1024 ** 2)
    .default(1024 ** 2),
});
export type ExecRequest = z.input<typeof ExecRequest>;

/** A file inside the sandbox with output that was too much to be shown; gone when newer ones need the room. */
export const OutputFileInfo = z.object({
  path: z.string(),
  bytes: z.int(),
  /** False: there was no room for all of it, and it ends early. */
  whole: z.boolean(),
});
export type OutputFileInfo = z.infer<typeof OutputFileInfo>;

/** Output that may have been cut in the middle. */
export const BoundedText = z.object({
  /** UTF-8, undecodable bytes replaced; a cut is marked in place with the number of bytes left out. */
  text: z.string(),
  totalBytes: z.int(),
  omittedBytes: z.int(),
  /** Where all of it is, if something was left out. */
  file: OutputFileInfo.optional(),
});
export type BoundedText = z.infer<typeof BoundedText>;

/** The limit that ended or disturbed a command, if one did. */
export const LimitHit = z.enum(['cpu', 'idle', 'memory', 'processes', 'disk', 'output', 'openFiles']);
export type LimitHit = z.infer<typeof LimitHit>;

export const ExecResult = z.object({
  /** Null when a signal ended it. */
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  timedOut: z.boolean(),
  limit: LimitHit.nullable(),
  stdout: BoundedText,
  stderr: BoundedText,
  ms: z.number(),
});
export type ExecResult = z.infer<typeof ExecResult>;

/**
 * POST /v1/sandboxes/:id/shells/:name/run: a command in a persistent bash on a PTY, opened on first use.
 * A call id that has been run returns its kept result and runs nothing.
 */
export const ShellRequest = z.object({
  fence: z.int().min(1),
  callId: z.string().min(1).max(200),
  command: z.string().max(16 * 1024 ** 2),
  timeoutMs: z.int().min(1).max(86_400_000),
  maxOutputBytes: z
    .int()
    .min(0)
    .max(16 * 1024 ** 2)
    .default(16_384),
});
export type ShellRequest = z.input<typeof ShellRequest>;

export const ShellResult = z.object({
  /** The command's own status; null if it was interrupted and gave none. 128+n when signal n ended it. */
  exitCode: z.int().nullable(),
  timedOut: z.boolean(),
  /** The shell had ended or would not answer, and a new one stands in its place (working directory kept). */
  restarted: z.boolean(),
  limit: LimitHit.nullable(),
  /**
   * A program read from the terminal, where nobody types: its input was `ended`, or, when that did not help, it
   * was `stopped`.
   */
  input: z.enum(['ended', 'stopped']).nullable(),
  /** stdout and stderr as the terminal showed them, line ends as \n. */
  output: BoundedText,
  cwd: z.string(),
  ms: z.number(),
});
export type ShellResult = z.infer<typeof ShellResult>;

/** POST /v1/sandboxes/:id/files (write) and /files/read. Paths are inside the sandbox. */
export const WriteFile = z.object({
  fence: z.int().min(1),
  path: FilePath,
  /** Base64. */
  content: z.string(),
  mode: z.int().min(0).max(0o777).default(0o644),
});
export type WriteFile = z.input<typeof WriteFile>;
export const ReadFile = z.object({
  fence: z.int().min(1),
  path: FilePath,
  maxBytes: z
    .int()
    .min(1)
    .max(64 * 1024 ** 2)
    .default(1024 ** 2),
});
export type ReadFile = z.input<typeof ReadFile>;
export const FileContent = z.object({ content: z.string(), totalBytes: z.int() });

/** POST /v1/sandboxes/:id/ledger: appends one record, durable when answered. `seq` must be the next. */
export const AppendLedger = z.object({
  fence: z.int().min(1),
  seq: z.int().min(0),
  /** A LedgerRecord; checked by its own schema. */
  record: z.unknown(),
});
export type AppendLedger = z.infer<typeof AppendLedger>;

/**
 * POST /v1/sandboxes/:id/abort: stops what runs there now (the worker that holds it is told through its
 * watch) but keeps sandbox and ledger until release.
 */
export const AbortReason = z.enum([...CancelReason.options, 'runDeadline']);
export type AbortReason = z.infer<typeof AbortReason>;
export const AbortSandbox = z.object({ reason: AbortReason });
export type AbortSandbox = z.infer<typeof AbortSandbox>;

/**
 * GET /v1/sandboxes/:id/watch?fence=N: newline-delimited JSON that stays open; an empty line every few
 * seconds, then one event and the end. No event before the end means that the host died. After `pause` the
 * holder watches again; `paused=true` then says that it has heard of that.
 */
export const WatchEvent = z.discriminatedUnion('event', [
  z.object({ event: z.literal('abort'), reason: AbortReason }),
  z.object({ event: z.literal('pause') }),
  z.object({ event: z.literal('superseded') }),
  z.object({ event: z.literal('released') }),
  z.object({ event: z.literal('lost'), message: z.string() }),
]);
export type WatchEvent = z.infer<typeof WatchEvent>;

/** POST /v1/sandboxes/:id/pause: tells the holder, if its entry is this one or an earlier one, to pause. */
export const PauseSandbox = z.object({ entry: z.int().min(1) });

/** POST /v1/sandboxes/:id/kill, /shells/:name/interrupt and /shells/:name/close. */
export const FencedRequest = z.object({ fence: z.int().min(1) });

/** POST /v1/sandboxes/:id/kill {fence}: every process of the sandbox but its first is dead when answered. */
export const KillReceipt = z.object({ processesKilled: z.int(), ms: z.number() });
export type KillReceipt = z.infer<typeof KillReceipt>;

/**
 * DELETE /v1/sandboxes/:id: idempotent; an unknown sandbox answers released with 0 processes. With `?fence=`
 * only its holder ends it (FenceRefused).
 */
export const ReleaseReceipt = z.object({
  released: z.literal(true),
  processesKilled: z.int(),
  /** What their death took, which may have been earlier; absent where there was no sandbox. */
  killMs: z.number().optional(),
  ms: z.number(),
});
export type ReleaseReceipt = z.infer<typeof ReleaseReceipt>;

/**
 * POST /v1/drain: whether the host takes no new agent; those it has stay. Others are refused
 * (HostDrained). It forgets this when it ends.
 */
export const Drain = z.object({ draining: z.boolean() });
export type Drain = z.infer<typeof Drain>;

/** GET /v1/stats. */
export const HostStats = z.object({
  host: z.string(),
  backend: SandboxKind,
  /** Of agents. */
  sandboxes: z.int(),
  /** 0 while it is drained. */
  capacity: z.int(),
  /** Of graders; they have room of their own, so that agents that wait for graders cannot keep it from them. */
  graders: z.int(),
  graderCapacity: z.int(),
  pid: z.int(),
});
export type HostStats = z.infer<typeof HostStats>;

/** Answer of drain: with the rollouts whose agents have their sandboxes here. */
export const Drained = HostStats.extend({ rolloutIds: z.array(z.string()).default([]) });
export type Drained = z.infer<typeof Drained>;

/** Body of every answer that is not 2xx; `type` is a FailureType. */
export const SandboxProblem = z.object({ type: z.string(), message: z.string() });
