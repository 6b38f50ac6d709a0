import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { type Client, WorkflowUpdateFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { z } from 'zod';
import { isFailureType, RolloutError } from '../contracts/failures.ts';
import {
  POOL_STATE_QUERY,
  type PoolInput,
  type PoolReport,
  type PoolState,
  type PoolUpdate,
  poolWorkflowId,
} from '../contracts/pool.ts';
import {
  AddServer,
  DrainServer,
  LabelServer,
  RaiseFloor,
  RemoveServer,
  SwapWeights,
} from '../contracts/pool-commands.ts';
import { problemsOf } from '../contracts/problems.ts';
import { startPool } from '../workers/pool/start.ts';
import { FAILED_PRECONDITION, grpcErrorIn } from './grpc-error.ts';

/** For so long an update that Temporal does not take is asked for again, so often, in milliseconds. */
const PATIENCE_MS = 120_000;
const ASK_AGAIN_MS = 1000;

/**
 * Asks after the pool of LLM servers and changes it. Each change is durable when it is made, is made after those that
 * were asked for before, and answers when no run worker acts on what was before; see docs/pool.md.
 * The same `key` again, for a change whose answer was lost, is the same change and answers alike.
 * Every method throws a RolloutError: InvalidRequest naming the field, or what a look at a server found.
 */
export class PoolClient {
  readonly #temporal: Client;
  readonly #input: PoolInput;

  constructor(temporal: Client, input: PoolInput) {
    this.#temporal = temporal;
    this.#input = input;
  }

  /** How the pool stands; needs a workflow worker. */
  async state(): Promise<PoolState> {
    await startPool(this.#temporal, this.#input);
    return this.#handle.query<PoolState>(POOL_STATE_QUERY);
  }

  /** Takes a server in that serves what the others of its labels do, or looks at one anew that is there. */
  add(command: z.input<typeof AddServer>, key?: string): Promise<PoolReport> {
    return this.#change('add', AddServer, command, key);
  }

  /** From when this answers no request begins there; those under way end by themselves. */
  remove(url: string, key?: string): Promise<PoolReport> {
    return this.#change('remove', RemoveServer, { url }, key);
  }

  /** Answers when no request is under way there any more: it can be stopped. */
  drain(command: z.input<typeof DrainServer>, key?: string): Promise<PoolReport> {
    return this.#change('drain', DrainServer, command, key);
  }

  label(command: z.input<typeof LabelServer>, key?: string): Promise<PoolReport> {
    return this.#change('label', LabelServer, command, key);
  }

  /**
   * Brings another version of the weights into use. From when this answers no request begins on the old one. Servers
   * that failed are named and out; that is no error as long as the report says so.
   */
  swap(command: z.input<typeof SwapWeights>, key?: string): Promise<PoolReport> {
    return this.#change('swap', SwapWeights, command, key);
  }

  /** From then on no rollout with a token of an older version goes on; RolloutClient.raiseFloor ends paused ones too. */
  raiseFloor(version: number, key?: string): Promise<PoolReport> {
    return this.#change('floor', RaiseFloor, { version }, key);
  }

  async #change<T extends z.ZodType>(
    name: PoolUpdate,
    schema: T,
    command: z.input<T>,
    key?: string,
  ): Promise<PoolReport> {
    const parsed = schema.safeParse(command);
    if (!parsed.success) throw new RolloutError('InvalidRequest', problemsOf(parsed.error));
    await startPool(this.#temporal, this.#input);
    // Temporal knows an update again by its id.
    const asked = { args: [parsed.data] as [unknown], updateId: key ?? randomUUID() };
    for (const until = Date.now() + PATIENCE_MS; ; await delay(ASK_AGAIN_MS)) {
      try {
        return await this.#handle.executeUpdate<PoolReport, [unknown]>(name, asked);
      } catch (error) {
        // While a task of the pool's workflow has failed, its worker too busy, say, Temporal takes no update for it.
        const notTaken = grpcErrorIn(error)?.code === FAILED_PRECONDITION;
        if (!notTaken || Date.now() > until) throw typed(error);
      }
    }
  }

  get #handle() {
    return this.#temporal.workflow.getHandle(poolWorkflowId(this.#input.pool));
  }
}

/** What the pool refused, as its own failure says it. */
function typed(error: unknown): unknown {
  const cause = error instanceof WorkflowUpdateFailedError ? error.cause : error;
  if (!(cause instanceof ApplicationFailure) || !isFailureType(cause.type)) return error;
  return new RolloutError(cause.type, cause.message, { cause: error });
}
