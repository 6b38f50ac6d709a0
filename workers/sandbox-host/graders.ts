import type { CreateSandbox } from '../../contracts/sandbox.ts';
import { Room } from './room.ts';
import type { Sandbox } from './sandbox.ts';

interface Placed {
  readonly sandbox: Sandbox;
  readonly rolloutId: string;
  readonly session: string | undefined;
}

/** The sandboxes of graders: one for each rollout and lane, in room of their own. */
export class Graders {
  private readonly room: Room;
  private readonly byLane = new Map<string, Placed>();

  constructor(capacity: number) {
    this.room = new Room(capacity);
  }

  /** Places that are taken. */
  get taken(): number {
    return this.room.taken;
  }

  /** Those that an earlier call of this rollout's grader left. */
  leftBy({ rolloutId, session }: CreateSandbox): Sandbox[] {
    return [...this.byLane.values()]
      .filter((placed) => placed.rolloutId === rolloutId && placed.session !== session)
      .map(({ sandbox }) => sandbox);
  }

  /** Waits for a place; the sandbox that had this lane hands its own on, and is returned for its end. */
  async enter(request: CreateSandbox, signal: AbortSignal): Promise<Sandbox | undefined> {
    const lane = laneOf(request);
    const before = this.byLane.get(lane);
    if (before) this.byLane.delete(lane);
    else await this.room.enter(signal);
    return before?.sandbox;
  }

  add(request: CreateSandbox, sandbox: Sandbox): void {
    const { rolloutId, session } = request;
    this.byLane.set(laneOf(request), { sandbox, rolloutId, session });
  }

  /** A place that came to nothing. */
  leave(): void {
    this.room.leave();
  }

  /** The sandbox has ended; its place is free, unless it has been handed on. */
  remove(sandbox: Sandbox): void {
    for (const [lane, placed] of this.byLane) {
      if (placed.sandbox !== sandbox) continue;
      this.byLane.delete(lane);
      this.room.leave();
    }
  }
}

/** Names the place of a grader's sandbox. */
export function laneOf({ rolloutId, lane = 0 }: CreateSandbox): string {
  return `grader ${lane} of ${rolloutId}`;
}
