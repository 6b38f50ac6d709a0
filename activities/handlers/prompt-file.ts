import { readFile } from 'node:fs/promises';
import { RolloutError } from '../../contracts/failures.ts';
import type { ChatMessage } from '../../contracts/trajectory.ts';

const ROLE_LINE = /^# (system|user|assistant|tool)[ \t]*$/m;

/**
 * Reads a prompt file: Markdown in which a line `# system`, `# user`, `# assistant` or `# tool` begins a
 * message, and `{{name}}` stands for a value. Values are put in literally.
 * @throws RolloutError InvalidTask naming a value that the file wants and nobody gave.
 */
export async function loadPrompt(
  file: URL,
  values: Readonly<Record<string, string>>,
): Promise<ChatMessage[]> {
  return parsePrompt(await readFile(file, 'utf8'), values);
}

/** {@link loadPrompt} on a text. */
export function parsePrompt(text: string, values: Readonly<Record<string, string>>): ChatMessage[] {
  const parts = text.split(ROLE_LINE);
  const messages: ChatMessage[] = [];
  for (let index = 1; index < parts.length; index += 2) {
    const content = (parts[index + 1] ?? '').trim().replace(/\{\{(\w+)\}\}/g, (_, name: string) => {
      const value = values[name];
      if (value === undefined) throw new RolloutError('InvalidTask', `the prompt wants {{${name}}}`);
      return value;
    });
    messages.push({ role: parts[index] as ChatMessage['role'], content });
  }
  return messages;
}
