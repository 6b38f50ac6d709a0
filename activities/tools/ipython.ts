import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { RolloutError } from '../../contracts/failures.ts';
import { askDriver, type Driver, unanswered } from './in-shell.ts';
import { pythonBinds } from './python-binds.ts';
import type { Tool, ToolOutcome } from './tool.ts';

/** In the sandbox's environment: which Python runs the kernel. Without it, the `python3` on PATH. */
const PYTHON_VARIABLE = 'ROLLOUTS_PYTHON';
/** Milliseconds that the driver may take besides the code's own time: to start a kernel, and to end one. */
const DRIVER_MS = 90_000;
/** Milliseconds until it must have said that it has a request: Python may have to be started. */
const SILENT_MS = 30_000;

const DRIVER: Driver = {
  shell: 'ipython',
  python: `"\${${PYTHON_VARIABLE}:-python3}"`,
  // JSON's strings are Python's, too.
  program: `ECHO = ${JSON.stringify(source('ipython-echo.py'))}\n${source('ipython.py')}`,
};

function source(name: string): string {
  return readFileSync(new URL(name, import.meta.url), 'utf8');
}

const NEW_KERNEL = '[this is a new kernel, without the variables of the one before]';

const Answer = z.union([
  z.object({
    status: z.enum(['ok', 'timeout', 'restarted']),
    exitCode: z.int().nullable(),
    text: z.string(),
  }),
  z.object({ missing: z.string() }),
]);

/**
 * A Jupyter kernel in the sandbox: variables, imports and threads stay from call to call. Exit code 1: the code
 * raised. Images are saved in the workspace's folder `images`. The sandbox gets the Python of the set-up to run
 * it with; a handler whose image has ipykernel names that image's Python in the environment variable
 * ROLLOUTS_PYTHON instead.
 */
export const ipython: Tool = {
  spec: {
    name: 'ipython',
    description:
      'Run Python code in a persistent IPython session and see what it prints, its last value and errors. ' +
      'Variables stay. Nothing can be read from the keyboard. Images are saved in the folder images.',
    parameters: {
      type: 'object',
      properties: { code: { type: 'string', description: 'The code, of one or many lines.' } },
      required: ['code'],
      additionalProperties: false,
    },
    fence: { language: 'python', argument: 'code' },
  },

  sandbox: ({ python }) => ({ binds: pythonBinds(python), environment: { [PYTHON_VARIABLE]: python } }),

  async run(args, { sandbox, callId, timeoutMs }): Promise<ToolOutcome> {
    const { answer, result } = await askDriver(sandbox, DRIVER, {
      callId,
      timeoutMs: timeoutMs + DRIVER_MS,
      silentMs: SILENT_MS,
      call_id: callId,
      code: args.code,
      seconds: timeoutMs / 1000,
      workspace: sandbox.workspace,
    });
    const said = Answer.safeParse(answer).data;
    if (!said)
      return { status: 'restarted', exitCode: null, text: `[the kernel ended: ${unanswered(result)}]` };
    if ('missing' in said) {
      throw new RolloutError('HandlerFailed', `ipython: in the sandbox, ${said.missing}`);
    }
    const notes = [
      result.limit && `[${result.limit} limit reached]`,
      result.restarted && said.status === 'ok' && NEW_KERNEL,
    ].filter((note) => typeof note === 'string');
    return {
      ...said,
      status: notes.includes(NEW_KERNEL) ? 'restarted' : said.status,
      text: [said.text, ...notes].filter((part) => part !== '').join('\n'),
    };
  },
};
