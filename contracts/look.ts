/** Workflow type, and id of its one workflow, that has hosts copy what their agents have recorded so far. */
export const LOOKOUT = 'lookout';

/** Its update: answers when the copy is in the store. */
export const LOOK_UPDATE = 'look';

/** What it is asked for: one attempt, and the host on which its agent works. */
export interface LookInput {
  readonly host: string;
  readonly rolloutId: string;
  readonly workflowRunId: string;
  readonly attempt: number;
}
