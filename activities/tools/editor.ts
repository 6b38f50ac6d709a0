import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { RolloutError } from '../../contracts/failures.ts';
import { askDriver, type Driver, unanswered } from './in-shell.ts';
import type { Tool, ToolOutcome } from './tool.ts';

const DRIVER: Driver = {
  shell: 'editor',
  python: 'python3',
  program: readFileSync(new URL('./editor.py', import.meta.url), 'utf8'),
};

const Answer = z.union([z.object({ ok: z.boolean(), text: z.string() }), z.object({ missing: z.string() })]);

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
    const { workspace } = sandbox;
    const { answer, result } = await askDriver(sandbox, DRIVER, { ...args, callId, timeoutMs, workspace });
    const said = Answer.safeParse(answer).data;
    if (!said) {
      const text = `[the editor ended: ${unanswered(result)}. View the file to see whether it was changed]`;
      return { status: 'restarted', exitCode: null, text };
    }
    if ('missing' in said) throw new RolloutError('HandlerFailed', `editor: in the sandbox, ${said.missing}`);
    return { status: 'ok', exitCode: said.ok ? 0 : 1, text: said.text };
  },
};
