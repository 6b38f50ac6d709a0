import { z } from 'zod';
import type { AgentHandler } from '../../activities/handlers/handler.ts';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import type { Config } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { type HandlerDeadlines, settledDeadlines } from '../../contracts/deadlines.ts';
import type { Output } from '../output.ts';

/** `rollouts handlers`: the kinds of task that can be run, with their schema and an example. */
export async function handlersCommand(config: Config, output: Output): Promise<number> {
  const handlers = (await loadHandlers(config.workers, { python: () => loadTools().python }))
    .list()
    .map((handler) => ({
      name: handler.name,
      description: handler.description,
      schema: z.toJSONSchema(handler.schema, { io: 'input', unrepresentable: 'any' }),
      example: handler.example,
      deadlines: deadlinesOf(handler),
    }));
  output.result(handlers, () =>
    handlers
      .map(({ name, description, schema, example, deadlines }) =>
        [
          `${name}: ${description}`,
          `  run ${deadlines.runSeconds} s, evaluate ${deadlines.evaluateSeconds} s`,
          ...fieldsOf(schema).map((fields) => `  task     ${fields}`),
          `  example  ${JSON.stringify(example)}`,
        ].join('\n'),
      )
      .join('\n\n'),
  );
  return 0;
}

type Schema = z.core.JSONSchema.JSONSchema;

/** A schema's fields on one line, those with a question mark that may be absent; one line for each layout that it has. */
function fieldsOf({ title, properties = {}, required = [], anyOf }: Schema): string[] {
  if (anyOf) return anyOf.flatMap((one) => fieldsOf(one as Schema));
  const fields = Object.keys(properties).map((field) => (required.includes(field) ? field : `${field}?`));
  return [`${title === undefined ? '' : `${title}: `}${fields.join(', ')}`];
}

/** The deadlines of its example, where a request and the configuration say none. */
function deadlinesOf(handler: AgentHandler): HandlerDeadlines {
  const data = handler.schema.safeParse(handler.example);
  return settledDeadlines({}, data.success ? handler.deadlines?.(data.data) : {});
}
