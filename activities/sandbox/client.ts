import { type Dispatcher, Pool } from 'undici';
import { z } from 'zod';
import {
  AnswerReceipt,
  type EndpointAnswer,
  EndpointEvent,
  EndpointInfo,
  type OpenEndpoint,
} from '../../contracts/endpoint.ts';
import { isFailureType, messageOf, RolloutError } from '../../contracts/failures.ts';
import type { LedgerLine } from '../../contracts/ledger.ts';
import {
  type AbortSandbox,
  type AppendLedger,
  AttachResult,
  type AttachSandbox,
  type CreateSandbox,
  type Drain,
  Drained,
  type ExecRequest,
  ExecResult,
  FileContent,
  HostStats,
  KillReceipt,
  LedgerLines,
  type PauseSandbox,
  type ReadAttemptLedger,
  type ReadFile,
  ReleaseReceipt,
  SandboxInfo,
  SandboxProblem,
  type ShellRequest,
  ShellResult,
  WatchEvent,
  type WriteFile,
} from '../../contracts/sandbox.ts';
import { AbortedMany, type AbortMany } from '../../contracts/sweep.ts';
import {
  type DiffWorkspace,
  type MarkStart,
  RestoredWorkspace,
  type RestoreWorkspace,
  type SnapshotWorkspace,
  StartMark,
  WorkspaceDiff,
  WorkspaceSnapshot,
} from '../../contracts/workspace.ts';

/** Shorter than the host keeps an idle connection. */
const KEEP_ALIVE_MS = 60_000;
const UNAUTHORIZED = 401;

/** Where a sandbox host listens, and the token it asks for, or how to read that. */
export interface SandboxHostAddress {
  readonly socketPath: string;
  readonly token: string | (() => Promise<string>);
}

type Method = 'GET' | 'POST' | 'DELETE';
const Nothing = z.object({});
const NextEvent = z.object({ event: EndpointEvent.nullable() });

/**
 * Calls a sandbox host, one method per call of contracts/sandbox.ts. Failures are RolloutErrors of the type
 * that the host names, or HostUnreachable; an aborted signal's reason is thrown as it is.
 */
export class SandboxClient {
  private readonly pool: Pool;
  private readonly address: SandboxHostAddress;
  private token: string | undefined;

  constructor(address: SandboxHostAddress) {
    this.address = address;
    this.pool = new Pool('http://sandbox-host', {
      connect: { socketPath: address.socketPath },
      connections: null,
      // A tool call may take a day; a watch says nothing for as long as nothing happens.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
    });
  }

  create(request: CreateSandbox, signal?: AbortSignal): Promise<SandboxInfo> {
    return this.call(SandboxInfo, 'POST', '/v1/sandboxes', request, signal);
  }

  /** Takes a sandbox over: older fences are refused from then on. Says what has been recorded. */
  attach(sandboxId: string, request: AttachSandbox, signal?: AbortSignal): Promise<AttachResult> {
    return this.call(AttachResult, 'POST', `${at(sandboxId)}/attach`, request, signal);
  }

  /**
   * Waits for what becomes of the sandbox or of this fence. `paused`: a pause is known and no news.
   * @throws RolloutError HostUnreachable when the host goes away first
   */
  async watch(
    sandboxId: string,
    { fence, paused = false }: { fence: number; paused?: boolean },
    signal?: AbortSignal,
  ): Promise<WatchEvent> {
    const query = `fence=${fence}&paused=${paused}`;
    const text = await this.request('GET', `${at(sandboxId)}/watch?${query}`, undefined, signal);
    if (text.trim() === '') throw new RolloutError('HostUnreachable', 'the sandbox host went away');
    return WatchEvent.parse(JSON.parse(text));
  }

  /** Runs one program; aborting the signal kills it. */
  exec(sandboxId: string, request: ExecRequest, signal?: AbortSignal): Promise<ExecResult> {
    return this.call(ExecResult, 'POST', `${at(sandboxId)}/exec`, request, signal);
  }

  /** Runs a command in a persistent shell. Aborting the signal leaves it running: ask again by its call id. */
  shell(sandboxId: string, name: string, request: ShellRequest, signal?: AbortSignal): Promise<ShellResult> {
    return this.call(ShellResult, 'POST', `${at(sandboxId)}/shells/${name}/run`, request, signal);
  }

  /** ^C. */
  async interruptShell(sandboxId: string, name: string, fence: number, signal?: AbortSignal): Promise<void> {
    await this.call(Nothing, 'POST', `${at(sandboxId)}/shells/${name}/interrupt`, { fence }, signal);
  }

  /** Ends a shell with all it started. */
  async closeShell(sandboxId: string, name: string, fence: number, signal?: AbortSignal): Promise<void> {
    await this.call(Nothing, 'POST', `${at(sandboxId)}/shells/${name}/close`, { fence }, signal);
  }

  /** @throws RolloutError HandlerFailed with the system's words when the sandbox refuses */
  async writeFile(sandboxId: string, request: WriteFile, signal?: AbortSignal): Promise<void> {
    await this.call(Nothing, 'POST', `${at(sandboxId)}/files`, request, signal);
  }

  /** @throws RolloutError HandlerFailed with the system's words when the sandbox refuses */
  readFile(sandboxId: string, request: ReadFile, signal?: AbortSignal): Promise<z.infer<typeof FileContent>> {
    return this.call(FileContent, 'POST', `${at(sandboxId)}/files/read`, request, signal);
  }

  /** Diffs compare with the workspace as it is now. */
  markStart(sandboxId: string, request: MarkStart, signal?: AbortSignal): Promise<StartMark> {
    return this.call(StartMark, 'POST', `${at(sandboxId)}/workspace/start`, request, signal);
  }

  /** What is not as it was at the start. */
  diff(sandboxId: string, request: DiffWorkspace, signal?: AbortSignal): Promise<WorkspaceDiff> {
    return this.call(WorkspaceDiff, 'POST', `${at(sandboxId)}/workspace/diff`, request, signal);
  }

  /** Writes workspace and start to a file of the host. */
  snapshot(sandboxId: string, request: SnapshotWorkspace, signal?: AbortSignal): Promise<WorkspaceSnapshot> {
    return this.call(WorkspaceSnapshot, 'POST', `${at(sandboxId)}/workspace/snapshot`, request, signal);
  }

  /** Fills the empty workspace of a fresh sandbox from a snapshot. */
  restore(sandboxId: string, request: RestoreWorkspace, signal?: AbortSignal): Promise<RestoredWorkspace> {
    return this.call(RestoredWorkspace, 'POST', `${at(sandboxId)}/workspace/restore`, request, signal);
  }

  /** Opens the endpoint of the sandbox, unless it is open. */
  openEndpoint(sandboxId: string, request: OpenEndpoint, signal?: AbortSignal): Promise<EndpointInfo> {
    return this.call(EndpointInfo, 'POST', `${at(sandboxId)}/endpoint`, request, signal);
  }

  /** Waits for the next thing that happens at the endpoint; null: another of the same holder waits now. */
  async nextAtEndpoint(
    sandboxId: string,
    fence: number,
    signal?: AbortSignal,
  ): Promise<EndpointEvent | null> {
    const path = `${at(sandboxId)}/endpoint/next`;
    return (await this.call(NextEvent, 'POST', path, { fence }, signal)).event;
  }

  /** Answers a call at the endpoint. */
  answerAtEndpoint(
    sandboxId: string,
    request: EndpointAnswer,
    signal?: AbortSignal,
  ): Promise<z.infer<typeof AnswerReceipt>> {
    return this.call(AnswerReceipt, 'POST', `${at(sandboxId)}/endpoint/answer`, request, signal);
  }

  /** On disk when this resolves. The same record again is fine. */
  async appendLedger(sandboxId: string, request: AppendLedger, signal?: AbortSignal): Promise<void> {
    await this.call(Nothing, 'POST', `${at(sandboxId)}/ledger`, request, signal);
  }

  readLedger(sandboxId: string, signal?: AbortSignal): Promise<LedgerLine[]> {
    return this.call(LedgerLines, 'GET', `${at(sandboxId)}/ledger`, undefined, signal);
  }

  /** What an attempt whose sandbox is gone has recorded on this host. */
  readAttemptLedger(request: ReadAttemptLedger, signal?: AbortSignal): Promise<LedgerLine[]> {
    return this.call(LedgerLines, 'POST', '/v1/ledgers/read', request, signal);
  }

  /** Stops what runs and tells the holder. */
  async abort(sandboxId: string, request: z.infer<typeof AbortSandbox>, signal?: AbortSignal): Promise<void> {
    await this.call(Nothing, 'POST', `${at(sandboxId)}/abort`, request, signal);
  }

  /** Stops every agent that is selected; says whose. */
  abortMany(request: AbortMany, signal?: AbortSignal): Promise<z.infer<typeof AbortedMany>> {
    return this.call(AbortedMany, 'POST', '/v1/abort', request, signal);
  }

  /** Tells the holder to pause, unless it is a later entry. */
  async pause(sandboxId: string, request: z.infer<typeof PauseSandbox>, signal?: AbortSignal): Promise<void> {
    await this.call(Nothing, 'POST', `${at(sandboxId)}/pause`, request, signal);
  }

  /** All processes but the first are dead when this resolves. */
  kill(sandboxId: string, fence: number, signal?: AbortSignal): Promise<KillReceipt> {
    return this.call(KillReceipt, 'POST', `${at(sandboxId)}/kill`, { fence }, signal);
  }

  /**
   * Ends the sandbox. Idempotent.
   * @throws RolloutError FenceRefused if `fence` is given and a newer one has been issued since
   */
  release(
    sandboxId: string,
    { fence, signal }: { fence?: number; signal?: AbortSignal } = {},
  ): Promise<ReleaseReceipt> {
    const query = fence === undefined ? '' : `?fence=${fence}`;
    return this.call(ReleaseReceipt, 'DELETE', at(sandboxId) + query, undefined, signal);
  }

  stats(signal?: AbortSignal): Promise<HostStats> {
    return this.call(HostStats, 'GET', '/v1/stats', undefined, signal);
  }

  /** Makes the host take no new agent, or take them again. */
  drain(request: Drain, signal?: AbortSignal): Promise<Drained> {
    return this.call(Drained, 'POST', '/v1/drain', request, signal);
  }

  /** Drops its connections. */
  close(): Promise<void> {
    return this.pool.destroy();
  }

  private async call<T>(
    schema: z.ZodType<T>,
    method: Method,
    path: string,
    body: unknown,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const answer = schema.safeParse(parseJson(await this.request(method, path, body, signal)));
    if (answer.success) return answer.data;
    const problem = z.prettifyError(answer.error);
    throw new RolloutError('Internal', `the sandbox host's answer to ${method} ${path}: ${problem}`);
  }

  private async request(
    method: Method,
    path: string,
    body: unknown,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    let answer = await this.send(method, path, body, signal);
    if (answer.statusCode === UNAUTHORIZED && typeof this.address.token === 'function') {
      this.token = undefined; // a new host may have made a new one
      answer = await this.send(method, path, body, signal);
    }
    if (answer.statusCode === 200) return answer.text;
    const problem = SandboxProblem.safeParse(parseJson(answer.text)).data;
    throw new RolloutError(
      isFailureType(problem?.type) ? problem.type : 'Internal',
      problem?.message ?? `the sandbox host answered ${answer.statusCode} to ${method} ${path}`,
    );
  }

  private async send(method: Method, path: string, body: unknown, signal: AbortSignal | undefined) {
    signal?.throwIfAborted();
    try {
      const { token } = this.address;
      this.token ??= typeof token === 'string' ? token : await token();
      const headers: Record<string, string> = { authorization: `Bearer ${this.token}` };
      const options: Dispatcher.RequestOptions = { method, path, headers };
      if (body !== undefined) {
        headers['content-type'] = 'application/json';
        options.body = JSON.stringify(body);
      }
      if (signal) options.signal = signal;
      const { statusCode, body: answer } = await this.pool.request(options);
      return { statusCode, text: await answer.text() };
    } catch (error) {
      signal?.throwIfAborted();
      const { socketPath } = this.address;
      throw new RolloutError('HostUnreachable', `sandbox host on ${socketPath}: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }
}

function at(sandboxId: string): string {
  return `/v1/sandboxes/${encodeURIComponent(sandboxId)}`;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text; // its schema says what is wrong with it
  }
}
