import { readFileSync } from 'node:fs';
import { z } from 'zod';
import type { ShellResult } from '../../contracts/sandbox.ts';
import { answerMark, askInShell, encodeRequest } from './in-shell.ts';
import type { Tool, ToolOutcome } from './tool.ts';

const PROGRAM = readFileSync(new URL('./editor.py', import.meta.url), 'utf8');
const SHELL = 'editor';
/** Characters shown of what stands in the way of an answer. */
const SHOWN_CHARACTERS = 2000;

const Answer = z.object({ ok: z.boolean(), text: z.string() });

const text = (description: string) => ({ type: 'string', description });

/**
 * Views and edits text files of the workspace, with nothing changed but what the edit names. Runs inside the
 * sandbox, which must have a `python3`. Exit code 1: the edit was refused, and the text says why.
 */
export const editor: Tool = {
  spec: {
    name: 'editor',
    description:
      'View and edit text files in the workspace. Commands: view (a file with line numbers, or a folder), ' +
      'create (a file, replacing one that is there), str_replace (old_str must occur exactly once), insert ' +
      '(text after a line), undo (the last edit of a file).',
    parameters: {
      type: 'object',
      properties: {
        command: { type: 'string', enum: ['view', 'create', 'str_replace', 'insert', 'undo'] },
        path: text('File or folder, absolute or from the workspace.'),
        view_range: {
          type: 'array',
          items: { type: 'integer' },
          minItems: 2,
          maxItems: 2,
          description: 'For view: first and last line, counted from 1; -1 is the last line of the file.',
        },
        file_text: text('For create: the whole content.'),
        old_str: text('For str_replace: the text to be replaced, exactly as in the file.'),
        new_str: text('For str_replace: the text in its place, taken literally; none deletes.'),
        insert_line: { type: 'integer', minimum: 0, description: 'For insert: after which line; 0: first.' },
        insert_text: text('For insert: the new lines.'),
      },
      required: ['command', 'path'],
      additionalProperties: false,
    },
    fence: { language: 'editor' },
  },

  async run(args, { sandbox, callId, timeoutMs }): Promise<ToolOutcome> {
    const request = { ...args, mark: answerMark(callId), workspace: sandbox.workspace };
    // The program reads nothing of the workspace (-I), and no argument is too long for standard input.
    const command = `python3 -I - <<'END'\n${PROGRAM}\nmain('${encodeRequest(request)}')\nEND\n`;
    const { answer, result } = await askInShell(sandbox, SHELL, { callId, command, timeoutMs });
    const said = Answer.safeParse(answer);
    if (said.success) return { status: 'ok', exitCode: said.data.ok ? 0 : 1, text: said.data.text };
    return {
      status: result.timedOut ? 'timeout' : 'ok',
      exitCode: result.exitCode,
      text: unfinished(result),
    };
  },
};

/** What the model is shown when the program was ended, or could not begin. */
function unfinished({ timedOut, output }: ShellResult): string {
  const why = timedOut ? 'it took too long' : output.text.trim().slice(-SHOWN_CHARACTERS) || 'it was killed';
  return `[the editor did not finish: ${why}. View the file to see whether it was changed]`;
}
