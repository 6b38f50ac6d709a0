import { z } from 'zod';

/**
 * What the schema of rows of several layouts says of itself: their own schemas as JSON Schema's `anyOf`, which a check that
 * picks one of them by the row's fields cannot tell by itself.
 */
export function rowsOf(description: string, layouts: Readonly<Record<string, z.ZodType>>) {
  const anyOf = Object.entries(layouts).map(([title, schema]) => {
    const { $schema: _, ...own } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
    return { title, ...own };
  });
  return { description, anyOf };
}
