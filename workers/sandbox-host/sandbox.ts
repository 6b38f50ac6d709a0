import { rm } from 'node:fs/promises';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { LedgerLine } from '../../contracts/ledger.ts';
import type { AbortReason, SandboxInfo, WatchEvent } from '../../contracts/sandbox.ts';
import { Commands, type CommandsParts } from './commands.ts';
import { ENDPOINT_SOCKET, Endpoint } from './endpoint/endpoint.ts';
import { Holder } from './holder.ts';
import type { AttemptId } from './ledger/attempts.ts';
import type { Ledger } from './ledger/ledger.ts';
import { removeTree } from './remove-tree.ts';
import type { Watcher } from './watchers.ts';

/** What a {@link Sandbox} is made of. Its folder is removed with it. */
export interface SandboxParts extends Omit<CommandsParts, 'checkAlive'> {
  readonly rolloutId: string;
  readonly batchId: string | undefined;
  readonly groupId: string | undefined;
  readonly attempt: AttemptId;
  readonly host: string;
  readonly ledger: Ledger;
}

/** One live sandbox: who holds it, what runs in it, what it has recorded, and how it ends. */
export class Sandbox {
  readonly rolloutId: string;
  readonly attempt: AttemptId;
  private readonly parts: SandboxParts;
  private readonly holder: Holder;
  private readonly commands: Commands;
  /** Once it has been asked for. */
  private endpoint: Promise<Endpoint> | null = null;
  private ending: Promise<number> | null = null;
  private death: Promise<number> | null = null;
  private dead = false;

  constructor(parts: SandboxParts) {
    this.parts = parts;
    this.rolloutId = parts.rolloutId;
    this.attempt = parts.attempt;
    this.holder = new Holder(this.sandboxId);
    this.commands = new Commands({ ...parts, checkAlive: () => this.holder.checkAlive() });
    parts.handle.ended.then((message) => this.onEnded(message));
  }

  get sandboxId(): string {
    return this.parts.handle.sandboxId;
  }

  get batchId(): string | undefined {
    return this.parts.batchId;
  }

  get groupId(): string | undefined {
    return this.parts.groupId;
  }

  /** Of all tokens recorded; null before the first. */
  get oldestVersion(): number | null {
    return this.parts.ledger.oldestVersion;
  }

  /** Somebody waits to hear what becomes of it. */
  get isHeld(): boolean {
    return this.holder.isThere;
  }

  get lastHeard(): number {
    return this.holder.lastHeard;
  }

  /** Hands the sandbox to a new holder, as of {@link Holder.takeOver}. */
  takeOver(fence: number, entry = 0): SandboxInfo {
    this.holder.takeOver(fence, entry);
    // Who opened it has the error.
    this.endpoint?.then((endpoint) => endpoint.handOver()).catch(() => {});
    const { host, backend, handle } = this.parts;
    return {
      sandboxId: this.sandboxId,
      host,
      backend: backend.name,
      fence,
      workspace: handle.workspace,
    };
  }

  /** What its holder, and nobody else, may have run in it. @throws RolloutError as of {@link Holder.check} */
  heldBy(fence: number): Commands {
    this.holder.check(fence);
    return this.commands;
  }

  /** As of {@link Holder.check}. */
  check(fence: number): void {
    this.holder.check(fence);
  }

  /** As of {@link Holder.watch}. */
  watch(who: Watcher, signal: AbortSignal): Promise<WatchEvent | null> {
    return this.holder.watch(who, signal);
  }

  /** As of {@link Holder.pause}. */
  pause(entry: number): void {
    this.holder.pause(entry);
  }

  /** Opens the endpoint, unless it is open; where its socket is, as seen inside. @throws RolloutError SandboxFailed */
  async openEndpoint(fence: number, model: string): Promise<string> {
    this.check(fence);
    const { controlDir, handle } = this.parts;
    this.endpoint ??= Endpoint.open(controlDir, model).catch((error: unknown) => {
      this.endpoint = null;
      throw new RolloutError('SandboxFailed', `no endpoint: ${messageOf(error)}`, { cause: error });
    });
    await this.endpoint;
    return `${handle.control}/${ENDPOINT_SOCKET}`;
  }

  /** The open endpoint, for its holder. @throws RolloutError InvalidRequest if it is not open */
  async endpointFor(fence: number): Promise<Endpoint> {
    this.check(fence);
    if (!this.endpoint) throw new RolloutError('InvalidRequest', 'the endpoint has not been opened');
    const endpoint = await this.endpoint;
    this.check(fence);
    return endpoint;
  }

  appendLedger(fence: number, seq: number, record: unknown): Promise<void> {
    return this.parts.ledger.append(seq, fence, record, () => this.check(fence));
  }

  readLedger(): Promise<LedgerLine[]> {
    return this.parts.ledger.read();
  }

  /**
   * Stops what runs now and tells the holder; the ledger stays. After a deadline so does the sandbox, whose outcome
   * is still to be taken; of a cancelled one nothing more is wanted, and its processes die at once.
   */
  abort(reason: AbortReason): void {
    this.stop(reason);
    this.tellHolder();
  }

  /** The second half of {@link abort}; where many are aborted, their holders would want the processors for themselves. */
  tellHolder(): void {
    this.holder.tell();
  }

  /** The first half of {@link abort}. */
  stop(reason: AbortReason): void {
    if (this.ending) return;
    if (!this.holder.final) this.holder.settle({ event: 'abort', reason });
    if (reason === 'runDeadline') {
      this.commands.abort();
      return;
    }
    this.die().catch((error: unknown) => {
      this.parts.logger.warn({ sandbox: this.sandboxId, problem: messageOf(error) }, 'not dead yet');
    });
  }

  /** Milliseconds that the death of its processes took. */
  killMs: number | undefined;

  /** No process of it is left. */
  get isDead(): boolean {
    return this.dead;
  }

  /** Kills everything; returns how many processes there were. Asked again, it waits for the same death. */
  private die(): Promise<number> {
    const { backend, handle } = this.parts;
    this.death ??= (async () => {
      const started = performance.now();
      this.commands.retire();
      const count = await backend.destroy(handle);
      this.dead = true;
      this.killMs = performance.now() - started;
      this.commands.stopPrograms();
      return count;
    })().catch((error: unknown) => {
      this.death = null; // tried again by the next who asks
      throw error;
    });
    return this.death;
  }

  /**
   * Ends everything, removes the sandbox's folder and closes its ledger; returns how many processes there
   * were. Asked again, it waits for the same end.
   */
  end(event: WatchEvent): Promise<number> {
    // A failure to end is tried again by the next who asks.
    this.ending ??= this.endNow(event).catch((error: unknown) => {
      this.ending = null;
      throw error;
    });
    return this.ending;
  }

  private async endNow(event: WatchEvent): Promise<number> {
    this.commands.unwatch();
    this.holder.settle(event);
    this.holder.tell();
    const { backend, ledger, folder } = this.parts;
    const count = await this.die();
    await (await this.endpoint?.catch(() => null))?.close();
    await this.commands.close();
    // Where nothing ran, nothing hostile lies: no process is needed to remove it.
    await (backend.name === 'none' ? rm(folder, { recursive: true }) : removeTree(folder));
    await ledger.close();
    return count;
  }

  private onEnded(message: string): void {
    this.commands.unwatch();
    const { final } = this.holder;
    if (final !== null && (final.event !== 'abort' || this.death)) return; // as it was told to
    this.holder.settle({ event: 'lost', message });
    this.holder.tell();
    this.commands.stopPrograms();
  }
}
