import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { PROJECT_ROOT } from '../../config/tools.ts';

/** A command of a page, without its comment. */
export interface DocumentedCommand {
  readonly page: string;
  readonly command: string;
}

/** Every command of the `sh` blocks of every page that is delivered. */
export function documentedCommands(): DocumentedCommand[] {
  return pages().flatMap((page) => {
    const text = readFileSync(path.join(PROJECT_ROOT, page), 'utf8');
    const blocks = [...text.matchAll(/^ *```sh\n(.*?)^ *```/gms)].map(([, block]) => block as string);
    return blocks.flatMap(commandsOf).map((command) => ({ page, command }));
  });
}

/** The text of every page that is delivered, and of what tells somebody on call what to do. */
export function texts(): { page: string; text: string }[] {
  const dashboards = 'scripts/docs/dashboards/components.ts';
  return [...pages(), 'monitoring/alerts.yml', dashboards, 'contracts/failures.ts'].map((page) => ({
    page,
    text: readFileSync(path.join(PROJECT_ROOT, page), 'utf8'),
  }));
}

function pages(): string[] {
  const skipped = new Set(['node_modules', '.git', '.rollouts', 'test']);
  const found: string[] = [];
  const visit = (folder: string) => {
    for (const entry of readdirSync(path.join(PROJECT_ROOT, folder), { withFileTypes: true })) {
      const name = path.join(folder, entry.name);
      if (entry.isDirectory() && !skipped.has(entry.name)) visit(name);
      else if (entry.isFile() && name.endsWith('.md')) found.push(name);
    }
  };
  visit('');
  return found.sort();
}

/** Lines are joined after a backslash and within quotes; a comment begins at `#` after a blank, outside of quotes. */
export function commandsOf(block: string): string[] {
  const commands: string[] = [];
  let command = '';
  let quote = '';
  for (const line of block.split('\n')) {
    let end = line.length;
    for (let at = 0; at < line.length; at++) {
      const character = line[at] as string;
      if (quote) quote = character === quote ? '' : quote;
      else if (character === "'" || character === '"') quote = character;
      else if (character === '#' && (at === 0 || line[at - 1] === ' ')) {
        end = at;
        break;
      }
    }
    command += line.slice(0, end);
    if (quote) command += '\n';
    else if (command.endsWith('\\')) command = command.slice(0, -1);
    else {
      if (command.trim() !== '') commands.push(command.trim().replace(/ {2,}/g, ' '));
      command = '';
    }
  }
  return commands;
}
