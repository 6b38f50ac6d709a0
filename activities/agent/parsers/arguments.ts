import { z } from 'zod';
import type { ToolSpec } from '../../../contracts/tools.ts';

/** One schema per tool: reading a JSON schema costs more than applying it. */
const schemas = new WeakMap<ToolSpec, z.ZodType>();

/** What is wrong with a tool's arguments, for the model to read; undefined if nothing is. */
export function problemOfArguments(tool: ToolSpec, values: Record<string, unknown>): string | undefined {
  if (tool.checksItself) return undefined;
  let schema = schemas.get(tool);
  if (!schema) {
    schema = z.fromJSONSchema(tool.parameters as Parameters<typeof z.fromJSONSchema>[0]);
    schemas.set(tool, schema);
  }
  const parsed = schema.safeParse(values);
  if (parsed.success) return undefined;
  const problems = parsed.error.issues.map(
    ({ path, message }) => `${path.join('.') || 'arguments'}: ${message}`,
  );
  return `wrong arguments for ${tool.name}: ${problems.join('; ')}`;
}
