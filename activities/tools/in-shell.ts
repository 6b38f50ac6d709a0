import type { ShellResult } from '../../contracts/sandbox.ts';
import type { BoundSandbox } from '../sandbox/bound.ts';

/** Bytes of an answer, with room for what else the shell prints. */
const MAX_ANSWER_BYTES = 4 * 1024 ** 2;

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

/** Base64 of JSON: letters and digits, which pass through any shell. */
export function encodeRequest(request: Record<string, unknown>): string {
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
