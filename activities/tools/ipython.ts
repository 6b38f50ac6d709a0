import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { RolloutError } from '../../contracts/failures.ts';
import { answerMark, askInShell, encodeRequest, quote } from './in-shell.ts';
import { pythonBinds } from './python-binds.ts';
import type { Tool, ToolOutcome } from './tool.ts';

const DRIVER = readFileSync(new URL('./ipython.py', import.meta.url), 'utf8');
const SHELL = 'ipython';
/** Milliseconds that the driver may take besides the code's own time: to start a kernel, and to end one. */
const DRIVER_MS = 90_000;
/** Milliseconds more until the shell itself is interrupted. */
const SHELL_MS = 10_000;
/** Characters shown of what stands in the way of an answer. */
const SHOWN_CHARACTERS = 2000;
/** In the sandbox's environment: which Python runs the kernel. Without it, the `python3` on PATH. */
const PYTHON_VARIABLE = 'ROLLOUTS_PYTHON';

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
    const { workspace } = sandbox;
    const request = {
      mark: answerMark(callId),
      call_id: callId,
      code: args.code,
      seconds: timeoutMs / 1000,
      workspace,
    };
    const { answer, result } = await askInShell(sandbox, SHELL, {
      callId,
      command: askDriver(request, timeoutMs + DRIVER_MS),
      timeoutMs: timeoutMs + DRIVER_MS + SHELL_MS,
    });
    const said = Answer.safeParse(answer).data;
    if (!said) {
      const why = result.output.text.trim().slice(-SHOWN_CHARACTERS) || 'it was killed';
      return { status: 'restarted', exitCode: null, text: `[the kernel ended: ${why}]` };
    }
    if ('missing' in said) {
      throw new RolloutError('HandlerFailed', `ipython: in the sandbox, ${said.missing}`);
    }
    return said;
  },
};

/**
 * For bash: hands a request to the driver, which it starts unless there is one, and prints the answer. The
 * driver is a coprocess of the shell, so that it stays between calls and ends with the shell.
 */
function askDriver(request: { mark: string }, timeoutMs: number): string {
  const mark = quote(request.mark);
  return `
__python=\${${PYTHON_VARIABLE}:-python3}
if ! command -v -- "$__python" >/dev/null; then
  printf '\\n%s{"missing":"there is no %s"}\\n' ${mark} "$__python"
  return 0
fi
if ! kill -0 "\${KERNEL_PID-}" 2>/dev/null; then
  set +m
  coproc KERNEL { exec "$__python" -I -c ${quote(DRIVER)}; }
fi
printf '%s\\n' '${encodeRequest(request)}' >&"\${KERNEL[1]}" || return 1
while IFS= read -r -t ${Math.ceil(timeoutMs / 1000)} __line <&"\${KERNEL[0]}"; do
  if [[ $__line == ${mark}* ]]; then printf '\\n%s\\n' "$__line"; return 0; fi
done
kill -KILL "\${KERNEL_PID-}" 2>/dev/null
return 1
`;
}
