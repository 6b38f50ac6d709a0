import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { RolloutError } from '../../../contracts/failures.ts';
import type { ToolSpec } from '../../../contracts/tools.ts';
import type { BoundSandbox } from '../../sandbox/bound.ts';
import type { Tool } from '../../tools/tool.ts';
import type { Document } from './task.ts';

const PROGRAM = readFileSync(new URL('./search.py', import.meta.url), 'utf8');
/** Of the workspace, where the agent may read it all as well. */
const FILE = 'documents.json';
export const MOST_RESULTS = 5;

const Answer = z.union([z.object({ results: z.string() }), z.object({ problem: z.string() })]);

/** Puts the documents where {@link search} looks for them. */
export async function placeDocuments(sandbox: BoundSandbox, documents: readonly Document[]): Promise<void> {
  await sandbox.writeFile(`${sandbox.workspace}/${FILE}`, JSON.stringify(documents));
}

/** How the agent calls a search, whatever is searched. */
export const SEARCH_SPEC: ToolSpec = {
  name: 'search',
  description: 'Find passages in the documents of the task by words. The best come first.',
  parameters: {
    type: 'object',
    properties: { query: { type: 'string', description: 'The words to look for.' } },
    required: ['query'],
    additionalProperties: false,
  },
  fence: { language: 'search', argument: 'query' },
};

/** Finds passages in the documents that a task brings, by words (SQLite's FTS5). Needs a `python3` in the sandbox. */
export const search: Tool = {
  spec: SEARCH_SPEC,

  async run({ query }, { sandbox, timeoutMs }) {
    const stdin = Buffer.from(JSON.stringify({ query, file: FILE, most: MOST_RESULTS })).toString('base64');
    const end = await sandbox.exec({
      argv: ['python3', '-c', PROGRAM],
      cwd: sandbox.workspace,
      stdin,
      timeoutMs,
    });
    if (end.timedOut) return { status: 'timeout', exitCode: null, text: 'The search took too long.' };
    const said = Answer.safeParse(end.exitCode === 0 ? JSON.parse(end.stdout.text) : undefined).data;
    if (!said) throw new RolloutError('HandlerFailed', `search: ${end.stderr.text.trim().slice(-300)}`);
    return 'problem' in said
      ? { status: 'ok', exitCode: 1, text: said.problem }
      : { status: 'ok', exitCode: 0, text: said.results };
  },
};
