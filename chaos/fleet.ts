import { setTimeout as delay } from 'node:timers/promises';
import { isGrpcServiceError } from '@temporalio/client';
import type { RolloutClient } from '../client/rollout-client.ts';
import type { RolloutRequestInput } from '../contracts/request.ts';
import type { RolloutResult } from '../contracts/result.ts';
import { CANCEL_SIGNAL } from '../contracts/signals.ts';
import { type ChaosTask, TOOL_SECONDS } from './tasks.ts';

/** Times that dead things are noticed in, and how often what fails is tried again. */
export const TIMES = { heartbeatTimeoutSeconds: 5, hostLostSeconds: 20 } as const;

/** One task's rollout. */
export interface Flight {
  readonly task: ChaosTask;
  readonly rolloutId: string;
  /** Null while it is open. */
  result: RolloutResult | null;
}

/** All rollouts of one pass over the tasks. */
export class Fleet {
  readonly flights: readonly Flight[];
  private readonly client: RolloutClient;

  constructor(client: RolloutClient, prefix: string, tasks: readonly ChaosTask[]) {
    this.client = client;
    this.flights = tasks.map((task) => ({ task, rolloutId: `${prefix}-${task.name}`, result: null }));
  }

  get open(): Flight[] {
    return this.flights.filter(({ result }) => result === null);
  }

  /** Starts all of them over `ms`, and resolves when each has its terminal record. */
  async fly(ms: number): Promise<void> {
    await Promise.all(
      this.flights.map(async (flight, index) => {
        await delay((ms * index) / this.flights.length);
        await whileAway(() => this.client.start(requestOf(flight)));
        flight.result = await whileAway(() => this.client.result(flight.rolloutId));
      }),
    );
  }

  /** Sends a signal, whatever it carries; one that has ended takes none, which is no failure. */
  async signal({ rolloutId }: Flight, name: string, ...args: unknown[]): Promise<void> {
    const handle = this.client.temporal.workflow.getHandle(rolloutId);
    await whileAway(() => handle.signal(name, ...args)).catch((error: unknown) => {
      if (!/not found|already completed/i.test(String(error))) throw error;
    });
  }

  cancel(flight: Flight): Promise<void> {
    return this.signal(flight, CANCEL_SIGNAL, { reason: 'stale' });
  }

  /** Where the open ones are, for a person who wonders what they wait for. */
  async whereabouts(): Promise<string> {
    const lines = this.open.map(async ({ rolloutId, task }) => {
      const status = await this.client.status(rolloutId).catch((error: unknown) => String(error));
      return `${rolloutId} (${task.kind}): ${JSON.stringify(status)}`;
    });
    return (await Promise.all(lines)).join('\n');
  }
}

function requestOf({ task, rolloutId }: Flight): RolloutRequestInput {
  // A grader that crashes always is tried three times; everything else as often as it takes.
  const stage = task.kind === 'graderCrash' ? 3 : 20;
  return {
    rolloutId,
    task: { handler: 'chaos', id: task.name, data: { ...task } },
    sampling: { maxTokensPerTurn: 2000 },
    limits: {
      maxTurns: task.turns - (task.kind === 'long' ? 1 : 0),
      toolTimeoutSeconds: task.kind === 'timeout' ? TOOL_SECONDS.short : TOOL_SECONDS.usual,
    },
    attempts: { rollout: 20, stage },
    ...TIMES,
  };
}

/** Tries until the Temporal server answers. */
export async function whileAway<R>(work: () => Promise<R>): Promise<R> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!isAway(error)) throw error;
      await delay(100);
    }
  }
}

function isAway(error: unknown): boolean {
  const AWAY = [1, 4, 8, 14]; // cancelled by the connection, deadline, exhausted, unavailable
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (isGrpcServiceError(cause)) return AWAY.includes(cause.code);
  }
  return false;
}
