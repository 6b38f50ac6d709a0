import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { makeProgram } from '../../client/cli.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { commandsOf, documentedCommands, texts } from './blocks.ts';
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

test('every `rollouts …` that a page, an alert or a failure names is one that there is, with its flags', () => {
  const program = makeProgram(() => {});
  const problems: string[] = [];
  let seen = 0;
  for (const { page, text } of texts()) {
    for (const [, line] of text.matchAll(/`(?:npx )?rollouts ((?![=…])[^`]+)`/g)) {
      seen++;
      let command = program;
      const words = (line as string).split(/\s+/);
      for (const word of words) {
        const next = command.commands.find((each) => each.name() === word);
        if (!next) break;
        command = next;
      }
      const known = new Set([...program.options, ...command.options].map(({ long }) => long));
      const flags = words.map((word) => /^--[\w-]+/.exec(word)?.[0]).filter((flag) => flag !== undefined);
      if (command === program) problems.push(`${page}: no command ${line}`);
      for (const flag of flags) if (!known.has(flag)) problems.push(`${page}: no ${flag} in ${line}`);
    }
  }
  assert.ok(seen > 50, `${seen}`);
  assert.deepEqual(problems, []);
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
