import { z } from 'zod';

/**
 * What a rollout works on: the handler that knows this kind of task, an id, and the task itself in the
 * handler's own format (a GSM8K line as it is, for example), checked by the handler's schema.
 */
export const Task = z.object({
  handler: z.string().min(1).max(100),
  id: z.string().min(1).max(200),
  data: z.record(z.string(), z.unknown()),
});
export type Task = z.infer<typeof Task>;
