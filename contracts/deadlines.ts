import type { Deadlines, RolloutRequest } from './request.ts';

/** Deadlines that a handler may ask for, since it knows what its tasks take: seconds. */
export interface HandlerDeadlines {
  readonly runSeconds?: number | undefined;
  readonly evaluateSeconds?: number | undefined;
}

/** Where neither a request nor its handler says anything. */
const USUAL = { runSeconds: 600, evaluateSeconds: 60 };

/** A request all of whose deadlines are there. */
export type SettledRequest = RolloutRequest & {
  readonly deadlines: Deadlines & { readonly runSeconds: number; readonly evaluateSeconds: number };
};

/** The deadlines that hold: those that were asked for, else the handler's, else the usual. Pure. */
export function settledDeadlines<D extends HandlerDeadlines>(asked: D, handler: HandlerDeadlines = {}) {
  const { runSeconds = handler.runSeconds ?? USUAL.runSeconds } = asked;
  const { evaluateSeconds = handler.evaluateSeconds ?? USUAL.evaluateSeconds } = asked;
  return { ...asked, runSeconds, evaluateSeconds };
}
