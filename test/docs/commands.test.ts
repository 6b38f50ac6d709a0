import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { commandsOf, documentedCommands } from './blocks.ts';
import { COMMANDS, runBy } from './commands.ts';

test('commands are found in a block', () => {
  const block = `a --b   # a comment\nc 'x # no\n  comment' \\\n  "d#e"\n\n# only a comment\n`;
  assert.deepEqual(commandsOf(block), ['a --b', `c 'x # no\n comment' "d#e"`]);
});

test('it is known of every command of the documentation who runs it, and of no other', () => {
  const documented = documentedCommands();
  for (const { page, command } of documented) {
    assert.ok(runBy(command), `${page}: nobody runs ${JSON.stringify(command)} (test/docs/commands.ts)`);
  }
  const said = new Set(documented.map(({ command }) => command));
  for (const command of Object.keys(COMMANDS)) {
    assert.ok(said.has(command), `nowhere in the documentation: ${command}`);
  }
});

test('what is to run a command is there', () => {
  for (const { command } of documentedCommands()) {
    const by = runBy(command);
    if (!by || 'step' in by) continue;
    const file = 'file' in by ? by.file : 'checked' in by ? by.checked : by.byHand;
    assert.ok(existsSync(path.join(PROJECT_ROOT, file)), `${command}: no ${file}`);
    if (!('file' in by)) continue;
    const text = readFileSync(path.join(PROJECT_ROOT, by.file), 'utf8');
    assert.ok(text.includes(by.has), `${command}: ${by.file} has no ${by.has}`);
  }
});
