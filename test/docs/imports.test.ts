import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { PROJECT_ROOT } from '../../config/tools.ts';

/** What each folder may import besides itself, as its README says. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  contracts: [],
  config: ['contracts'],
  workflows: ['contracts'],
  'temporal-config': ['contracts', 'config'],
  activities: ['contracts'],
  workers: ['contracts', 'config', 'activities', 'temporal-config'],
  gateway: ['contracts', 'config', 'temporal-config', 'activities', 'client', 'workers'],
  client: ['contracts', 'config', 'temporal-config', 'activities', 'workers'],
};

function sources(folder: string): string[] {
  return readdirSync(path.join(PROJECT_ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(folder, name));
}

function importsOf(file: string): { from: string; typeOnly: boolean }[] {
  const text = readFileSync(path.join(PROJECT_ROOT, file), 'utf8');
  return [...text.matchAll(/^(?:import|export)\s+(type\s)?[^;]*?from '([^']+)'/gm)].map((match) => ({
    typeOnly: match[1] !== undefined,
    from: match[2] as string,
  }));
}

test('imports point one way', () => {
  for (const [folder, allowed] of Object.entries(MAY_IMPORT)) {
    for (const file of sources(folder)) {
      for (const { from } of importsOf(file)) {
        if (!from.startsWith('.')) continue;
        const target = path.normalize(path.join(path.dirname(file), from)).split(path.sep)[0] as string;
        assert.ok(target === folder || allowed.includes(target), `${file} imports ${from}`);
      }
    }
  }
});

test('workflows load no zod: schemas would cost memory in every one', () => {
  const seen = new Set<string>();
  const visit = (file: string) => {
    if (seen.has(file)) return;
    seen.add(file);
    for (const { from, typeOnly } of importsOf(file)) {
      if (typeOnly) continue;
      assert.notEqual(from, 'zod', `${file} is loaded by a workflow`);
      if (from.startsWith('.')) visit(path.normalize(path.join(path.dirname(file), from)));
    }
  };
  visit('workflows/index.ts');
  assert.ok(seen.has(path.normalize('contracts/failures.ts')));
});
