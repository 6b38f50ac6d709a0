import type { ShellResult } from '../../contracts/sandbox.ts';
import type { BoundSandbox } from '../sandbox/bound.ts';

/** Bytes of an answer, with room for what else the shell prints. */
const MAX_ANSWER_BYTES = 4 * 1024 ** 2;

/** Milliseconds after a driver's time until its shell is interrupted. */
const SHELL_MS = 10_000;
/** Characters shown of what stands in the way of an answer. */
const SHOWN_CHARACTERS = 2000;

/** What a program said in a shell, and what the shell said of it. */
export interface ShellAnswer {
  /** JSON; undefined when the program ended without saying it. */
  readonly answer: unknown;
  readonly result: ShellResult;
}

/** How a tool's program marks the line with its answer. Made from the call id: a kept result has it too. */
export function answerMark(callId: string): string {
  return `rollout-answer ${callId} `;
}

/**
 * Runs a command that answers with one line of {@link answerMark} and JSON. By way of a shell, for what a
 * shell of the sandbox host gives: a call id that has run is not run again, on no worker.
 */
export async function askInShell(
  sandbox: BoundSandbox,
  shell: string,
  request: { callId: string; command: string; timeoutMs: number },
): Promise<ShellAnswer> {
  const result = await sandbox.shell(shell, { ...request, maxOutputBytes: MAX_ANSWER_BYTES });
  const mark = answerMark(request.callId);
  const line = result.output.text.split('\n').findLast((candidate) => candidate.startsWith(mark));
  return { answer: line === undefined ? undefined : parse(line.slice(mark.length)), result };
}

/**
 * A Python program that stays in the sandbox between calls. It reads requests from standard input, each a line
 * of base64 of JSON with a `mark`, and answers each with a line: the mark, then JSON. Before that it may say `within
 * <seconds>`: when it is to be heard of again, at the latest. It leaves the terminal's session, so that what interrupts
 * the shell is not meant for it.
 */
export interface Driver {
  /** Name of its shell; it ends with that. */
  readonly shell: string;
  /** A word for bash: which Python runs it. */
  readonly python: string;
  readonly program: string;
}

interface DriverRequest {
  readonly callId: string;
  readonly timeoutMs: number;
  readonly silentMs?: number;
  readonly [field: string]: unknown;
}

/**
 * Hands a request to a driver, which is started unless it runs. A driver that has not said its first word within
 * `silentMs`, or is not heard of again in time, is killed. `{"missing": "there is no …"}` is the answer where there is no such Python.
 */
export function askDriver(
  sandbox: BoundSandbox,
  { shell, python, program }: Driver,
  { callId, timeoutMs, silentMs = timeoutMs, ...request }: DriverRequest,
): Promise<ShellAnswer> {
  const mark = quote(answerMark(callId));
  // A coprocess of the shell, on which builtins alone can act.
  const command = `
__python=${python}
if ! command -v -- "$__python" >/dev/null; then
  printf '\\n%s{"missing":"there is no %s"}\\n' ${mark} "$__python"
  return 0
fi
if ! kill -0 "\${DRIVER_PID-}" 2>/dev/null; then
  set +m
  coproc DRIVER { exec "$__python" -I -c ${quote(program)}; }
fi
kill -CONT "\${DRIVER_PID-}" 2>/dev/null # what it runs may have stopped it
__seconds=${Math.ceil(silentMs / 1000)}
printf '%s\\n' '${encode({ ...request, mark: answerMark(callId) })}' >&"\${DRIVER[1]}" &&
  while IFS= read -r -t "$__seconds" __line <&"\${DRIVER[0]}"; do
    if [[ $__line == ${mark}* ]]; then printf '\\n%s\\n' "$__line"; return 0; fi
    if [[ $__line == 'within '* ]]; then __seconds=\${__line#within }; fi
  done
kill -KILL "\${DRIVER_PID-}" 2>/dev/null
wait "\${DRIVER_PID-}" 2>/dev/null # or the next request would go to it
return 1
`;
  return askInShell(sandbox, shell, { callId, command, timeoutMs: timeoutMs + SHELL_MS });
}

/** What stands in the way of an answer, for the model to see. */
export function unanswered({ output }: ShellResult): string {
  return output.text.trim().slice(-SHOWN_CHARACTERS) || 'it was killed';
}

/** Base64 of JSON: letters and digits, which pass through any shell. */
function encode(request: Record<string, unknown>): string {
  return Buffer.from(JSON.stringify(request)).toString('base64');
}

/** `text` as one word for bash, taken literally. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined; // cut off: as good as none
  }
}
