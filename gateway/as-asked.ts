import { z } from 'zod';
import { requestDefaults } from '../client/batch.ts';
import type { Config } from '../config/load.ts';
import { unwrapped } from '../config/names.ts';

/**
 * The fields of a schema as a caller may give them: none has to be there, at any depth, and none gets a default, so
 * that what is left out is as configured.
 */
export function asAsked(schema: z.ZodObject): Record<string, z.ZodOptional> {
  return Object.fromEntries(
    Object.entries(schema.shape).map(([name, child]) => {
      const inner = unwrapped(child as z.ZodType);
      const meant = inner instanceof z.ZodObject ? z.object(asAsked(inner)) : inner;
      return [name, meant.optional()];
    }),
  );
}

/** What was asked for over what is configured. */
export function overConfigured<T extends object>(config: Config, asked: T): T {
  const merged: Record<string, unknown> = { ...requestDefaults(config) };
  for (const [name, value] of Object.entries(asked)) {
    const before = merged[name];
    merged[name] = isPlain(before) && isPlain(value) ? { ...before, ...value } : value;
  }
  return merged as T;
}

function isPlain(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
