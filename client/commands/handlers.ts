import { z } from 'zod';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import type { Config } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { type Output, tableOf } from '../output.ts';

/** `rollouts handlers`: the kinds of task that can be run, with their schema and an example. */
export async function handlersCommand(config: Config, output: Output): Promise<number> {
  const handlers = (await loadHandlers(config.workers.handlers, { python: () => loadTools().python }))
    .list()
    .map((handler) => ({
      name: handler.name,
      description: handler.description,
      schema: z.toJSONSchema(handler.schema, { io: 'input', unrepresentable: 'any' }),
      example: handler.example,
    }));
  output.result(handlers, () =>
    tableOf(
      ['handler', 'tasks', 'example'],
      handlers.map((handler) => [handler.name, handler.description, JSON.stringify(handler.example)]),
    ),
  );
  return 0;
}
