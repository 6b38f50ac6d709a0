import { DefaultFailureConverter } from '@temporalio/common';

/** Puts messages and stacks of failures into payloads, where they are encrypted: they quote what the agent did. */
export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true });
