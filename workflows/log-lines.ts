import type { WorkflowInterceptors } from '@temporalio/workflow';

/** A workflow has modules of its own, so these are one's alone. */
let fields: Readonly<Record<string, string | number>> = {};

/** From here on, lines of this workflow's log have these fields besides its id. Nothing of them is in its history. */
export function linesSay(said: Readonly<Record<string, string | number>>): void {
  fields = said;
}

/** Part of the workflows' bundle. */
export const interceptors = (): WorkflowInterceptors => ({
  outbound: [{ getLogAttributes: (input, next) => next({ ...input, ...fields }) }],
});
