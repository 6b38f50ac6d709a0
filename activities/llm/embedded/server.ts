import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { LlamaCppDialect } from '../llama-cpp.ts';

export interface EmbeddedLlmOptions {
  /** Python with the package xllamacpp. */
  readonly python: string;
  /** GGUF file. */
  readonly model: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** Tokens of context of each request. */
  readonly contextTokens: number;
  /** Requests served at once. */
  readonly parallel: number;
  /** Default: all processors. */
  readonly threads?: number;
  /** Log-probabilities as float32 weights have them, for training. */
  readonly exact?: boolean;
  /** Where llama.cpp's own log goes. */
  readonly logFile: string;
  /** Milliseconds until a server that does not answer is given up; default 120,000. */
  readonly startTimeoutMs?: number;
}

export interface EmbeddedLlm {
  readonly url: string;
  readonly pid: number;
  /** Resolves when the process has ended, for whatever reason. */
  readonly exited: Promise<void>;
  /** Ends the process; idempotent. */
  stop(): Promise<void>;
}

const StartEvent = z.discriminatedUnion('event', [
  z.object({ event: z.literal('ready'), url: z.url(), pid: z.int() }),
  z.object({ event: z.literal('failed'), reason: z.string(), message: z.string() }),
]);
type StartEvent = z.infer<typeof StartEvent>;

/** The program that serves. */
export const EMBEDDED_SERVER = fileURLToPath(new URL('./serve.py', import.meta.url));

/**
 * Starts the LLM server that comes with the project and waits until it answers. The server ends with this
 * process, however that ends.
 * @throws LlmUnreachable that says what is missing or in the way.
 */
export async function startEmbeddedLlm(options: EmbeddedLlmOptions): Promise<EmbeddedLlm> {
  const timeoutMs = options.startTimeoutMs ?? 120_000;
  const child = launch(options);
  const exited = new Promise<void>((resolve) => child.once('close', () => resolve()));
  // Writing to a server that is gone is no news: `exited` tells.
  child.stdin?.on('error', () => {});
  let stopping: Promise<void> | undefined;
  const stop = () => {
    stopping ??= end(child, exited);
    return stopping;
  };
  const deadline = AbortSignal.timeout(timeoutMs);
  try {
    const { url, pid } = await started(child, options, deadline);
    const dialect = new LlamaCppDialect(url);
    try {
      await dialect.health(deadline);
    } finally {
      await dialect.close();
    }
    return { url, pid, exited, stop };
  } catch (error) {
    await stop();
    if (error instanceof RolloutError) throw error;
    const reason = deadline.aborted ? `it did not answer within ${timeoutMs} ms` : messageOf(error);
    throw failure(reason, options, error);
  }
}

function launch({
  python,
  model,
  port,
  contextTokens,
  parallel,
  threads,
  exact = false,
  logFile,
}: EmbeddedLlmOptions): ChildProcess {
  const log = openSync(logFile, 'a');
  try {
    const numbers = { port, ctx: contextTokens, parallel, threads };
    const flags = Object.entries(numbers).flatMap(([name, value]) =>
      value === undefined ? [] : [`--${name}`, String(value)],
    );
    if (exact) flags.push('--exact');
    // Its standard input stays open for as long as this process lives: the end of it ends the server.
    return spawn(python, [EMBEDDED_SERVER, '--model', model, ...flags], { stdio: ['pipe', 'pipe', log] });
  } finally {
    closeSync(log);
  }
}

/** The server's own first line. */
async function started(
  child: ChildProcess,
  options: EmbeddedLlmOptions,
  deadline: AbortSignal,
): Promise<Extract<StartEvent, { event: 'ready' }>> {
  const line = await new Promise<string>((resolve, reject) => {
    if (child.stdout) createInterface({ input: child.stdout }).once('line', resolve);
    child.once('error', (error) => {
      reject(failure(`${options.python} cannot be run: ${error.message}`, options, error));
    });
    child.once('close', (code, signal) => {
      reject(failure(`it ended at once (${signal ?? `exit code ${code}`})`, options));
    });
    deadline.addEventListener('abort', () => reject(deadline.reason), { once: true });
  });
  const event = StartEvent.parse(JSON.parse(line));
  if (event.event === 'ready') return event;
  throw failure(event.message, options);
}

function failure(
  reason: string,
  { model, port, logFile }: EmbeddedLlmOptions,
  cause?: unknown,
): RolloutError {
  const what = `the embedded LLM server (${model}, port ${port || 'free'}) did not start: ${reason}`;
  return new RolloutError('LlmUnreachable', `${what}; its log is ${logFile}`, { cause });
}

async function end(child: ChildProcess, exited: Promise<void>): Promise<void> {
  if (child.pid === undefined) return;
  child.stdin?.end();
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 5_000);
  await exited;
  clearTimeout(timer);
}
