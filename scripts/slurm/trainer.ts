import { setTimeout as delay } from 'node:timers/promises';
import { TIMES } from '../../chaos/fleet.ts';
import type { ChaosTask } from '../../chaos/tasks.ts';
import type { RolloutResult } from '../../contracts/result.ts';

/** A row of `GET /v1/rollouts`. */
export interface Row {
  readonly rolloutId: string;
  readonly stage: string | null;
  readonly outcome: string | null;
  readonly host: string | null;
}

/** A trainer that knows no more than the gateway's address and its token. */
export class Trainer {
  private readonly where: () => Promise<string>;
  private readonly token: string;

  constructor(where: () => Promise<string>, token: string) {
    this.where = where;
    this.token = token;
  }

  addServer(url: string): Promise<unknown> {
    return this.call('POST', '/v1/pools/default/add', { server: { url } });
  }

  async hosts(): Promise<{ host: string; stats: { sandboxes: number } | null }[]> {
    return ((await this.call('GET', '/v1/hosts')) as { hosts: [] }).hosts;
  }

  async open(): Promise<Row[]> {
    const { rollouts } = (await this.call('GET', '/v1/rollouts?limit=100')) as { rollouts: Row[] };
    return rollouts.filter(({ outcome }) => outcome === null);
  }

  async begin(rolloutId: string, task: ChaosTask): Promise<void> {
    await this.call('POST', '/v1/rollouts', {
      rolloutId,
      task: { handler: 'chaos', id: task.name, data: task },
      sampling: { maxTokensPerTurn: 2000 },
      limits: { maxTurns: task.turns, toolTimeoutSeconds: 60 },
      ...TIMES,
    });
  }

  /** Waits, for as long as it takes. */
  async record(rolloutId: string): Promise<RolloutResult> {
    for (;;) {
      const answer = (await this.call('GET', `/v1/rollouts/${rolloutId}?wait=20`)) as {
        done: boolean;
        record: RolloutResult;
      };
      if (answer.done) return answer.record;
    }
  }

  /** Tries again while nobody answers: the server's job may be on its way to another node. */
  private async call(method: string, path: string, body?: unknown): Promise<unknown> {
    for (;;) {
      const response = await fetch(`${await this.where()}${path}`, {
        method,
        headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      }).catch(() => undefined);
      if (response?.ok) return response.json();
      if (response && response.status !== 503) {
        throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
      }
      await delay(500);
    }
  }
}
