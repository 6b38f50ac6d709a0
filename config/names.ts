import { z } from 'zod';
import { ConfigSchema } from './schema.ts';

/** The environment variable of a dotted name: `workers.runSlots` → `ROLLOUTS_WORKERS_RUN_SLOTS`. */
export function environmentName(name: string): string {
  return `ROLLOUTS_${name
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replaceAll('.', '_')
    .toUpperCase()}`;
}

/** Dotted names of all values, in the schema's order. */
export function valueNames(schema: z.ZodType = ConfigSchema, prefix = ''): string[] {
  const object = unwrapped(schema);
  if (!(object instanceof z.ZodObject)) return [prefix];
  return Object.entries(object.shape).flatMap(([key, child]) =>
    valueNames(child as z.ZodType, prefix ? `${prefix}.${key}` : key),
  );
}

/** The value of a dotted name in a tree; undefined if it is not set. */
export function valueAt(tree: object, name: string): unknown {
  return name.split('.').reduce<unknown>((node, key) => (node as Record<string, unknown>)[key], tree);
}

/** True for values that are text: `123` given for one is text as well. */
export function isText(name: string): boolean {
  let schema: z.ZodType = ConfigSchema;
  for (const key of name.split('.')) {
    schema = (unwrapped(schema) as z.ZodObject).shape[key] as z.ZodType;
  }
  return unwrapped(schema) instanceof z.ZodString;
}

/** A schema without its defaults and its being optional. */
export function unwrapped(schema: z.ZodType): z.ZodType {
  let inner = schema;
  while (inner instanceof z.ZodDefault || inner instanceof z.ZodPrefault || inner instanceof z.ZodOptional) {
    inner = inner.unwrap() as z.ZodType;
  }
  return inner;
}
