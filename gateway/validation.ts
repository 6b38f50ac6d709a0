import type { FastifySchemaCompiler } from 'fastify';
import { validatorCompiler } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import { HttpProblem } from './problems.ts';

/**
 * Checks what a caller sends by the schema of its route. A field that the schema doesn't know is refused as well: a
 * setting with its name mistyped would else be passed over. (Headers are the caller's and every proxy's.)
 */
export const compileValidator: FastifySchemaCompiler<z.ZodType> = (route) => {
  const validate = validatorCompiler(route);
  if (route.httpPart === 'headers') return validate;
  return (given: unknown) => {
    const result = validate(given) as { value?: unknown; error?: Error };
    if (result.error) return result;
    const unknown = fieldsLeftOut(given, result.value);
    if (unknown.length === 0) return result;
    const errors = unknown.map((field) => ({ field, detail: 'there is no such field' }));
    const said = errors.map(({ field, detail }) => `${field}: ${detail}`).join('; ');
    return { error: new HttpProblem(422, `${route.httpPart}: ${said}`, errors) };
  };
};

/** JSON pointers to the fields of what was given that are not in what was taken. Pure. */
function fieldsLeftOut(given: unknown, taken: unknown, at = ''): string[] {
  if (!isObject(given) || !isObject(taken)) return [];
  return Object.entries(given).flatMap(([name, value]) => {
    const place = `${at}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    return Object.hasOwn(taken, name) ? fieldsLeftOut(value, taken[name], place) : [place];
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
