import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { configurationPage, failuresPage, metricsPage } from '../../scripts/docs/reference.ts';

const page = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8');

test('the reference pages say what the code says; `npm run docs` writes them', () => {
  assert.equal(page('failures.md'), failuresPage());
  assert.equal(page('configuration.md'), configurationPage());
  assert.equal(page('metrics.md'), metricsPage());
});

test('every configuration value is described', () => {
  const rows = configurationPage()
    .split('\n')
    .filter((line) => line.startsWith('| `'));
  assert.ok(rows.length > 30);
  for (const row of rows) assert.doesNotMatch(row, /\| {2}\|$/, row);
});
