import type { z } from 'zod';

/** What a schema found wrong, each with its field; pure. */
export function problemsOf(error: z.ZodError): string {
  return error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ');
}
