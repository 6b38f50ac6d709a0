import { z } from 'zod';
import type { AgentHandler } from '../../activities/handlers/handler.ts';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import type { Config } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { type HandlerDeadlines, settledDeadlines } from '../../contracts/deadlines.ts';
import { type Output, tableOf } from '../output.ts';

/** `rollouts handlers`: the kinds of task that can be run, with their schema and an example. */
export async function handlersCommand(config: Config, output: Output): Promise<number> {
  const handlers = (
    await loadHandlers(config.workers.handlers, {
      python: () => loadTools().python,
      searchUrl: config.workers.searchUrl,
    })
  )
    .list()
    .map((handler) => ({
      name: handler.name,
      description: handler.description,
      schema: z.toJSONSchema(handler.schema, { io: 'input', unrepresentable: 'any' }),
      example: handler.example,
      deadlines: deadlinesOf(handler),
    }));
  output.result(handlers, () =>
    tableOf(
      ['handler', 'tasks', 'run, evaluate', 'example'],
      handlers.map(({ name, description, deadlines, example }) => [
        name,
        description,
        `${deadlines.runSeconds} s, ${deadlines.evaluateSeconds} s`,
        JSON.stringify(example),
      ]),
    ),
  );
  return 0;
}

/** The deadlines of its example, where a request and the configuration say none. */
function deadlinesOf(handler: AgentHandler): HandlerDeadlines {
  const data = handler.schema.safeParse(handler.example);
  return settledDeadlines({}, data.success ? handler.deadlines?.(data.data) : {});
}
