import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { writeEndpoints } from '../../config/endpoints.ts';
import { loadConfig } from '../../config/load.ts';
import { environmentName, valueNames } from '../../config/names.ts';
import { startTimeOf } from '../../config/process-identity.ts';

let root: string;
before(() => {
  root = mkdtempSync(path.join(tmpdir(), 'config-'));
});
after(() => rmSync(root, { recursive: true }));

test('every value has a default', () => {
  const config = loadConfig({ env: {}, root });
  assert.equal(config.temporal.address, '127.0.0.1:7233');
  assert.equal(config.rollout.deadlines.initSeconds, 300);
  // The handler's own, where it asks for others than the usual.
  assert.equal(config.rollout.deadlines.runSeconds, undefined);
  assert.equal(config.rollout.deadlines.evaluateSeconds, undefined);
  assert.equal(config.derived.stateFolder, path.join(root, '.rollouts'));
  assert.deepEqual(config.origins, {});
});

test('flags win over the environment, the environment over the file', () => {
  const file = path.join(root, 'layers.toml');
  writeFileSync(file, '[workers]\nrunSlots = 3\nevalSlots = 4\ninitSlots = 5\n');
  const config = loadConfig({
    root,
    file,
    env: { ROLLOUTS_WORKERS_RUN_SLOTS: '6', ROLLOUTS_WORKERS_EVAL_SLOTS: '7' },
    flags: { workers: { runSlots: 8 } },
  });
  assert.deepEqual([config.workers.runSlots, config.workers.evalSlots, config.workers.initSlots], [8, 7, 5]);
  assert.equal(config.origins['workers.runSlots'], 'flag');
  assert.equal(config.origins['workers.evalSlots'], 'environment ROLLOUTS_WORKERS_EVAL_SLOTS');
  assert.equal(config.origins['workers.initSlots'], `file ${file}`);
});

test('a wrong value is refused with its name, origin and what was expected', () => {
  assert.throws(
    () => loadConfig({ root, env: { ROLLOUTS_WORKERS_RUN_SLOTS: 'many' } }),
    /workers\.runSlots \(environment ROLLOUTS_WORKERS_RUN_SLOTS\): .*expected number/,
  );
});

test('a misspelt name is refused, in the file and in the environment', () => {
  const file = path.join(root, 'typo.toml');
  writeFileSync(file, '[workers]\nrunslots = 3\n');
  assert.throws(() => loadConfig({ root, file, env: {} }), /runslots/);
  assert.throws(
    () => loadConfig({ root, env: { ROLLOUTS_WORKERS_RUNSLOTS: '3' } }),
    /ROLLOUTS_WORKERS_RUNSLOTS/,
  );
});

test('a file that was named must exist and parse', () => {
  assert.throws(() => loadConfig({ root, env: { ROLLOUTS_CONFIG: '/nowhere.toml' } }), /does not exist/);
  const file = path.join(root, 'broken.toml');
  writeFileSync(file, '[workers\n');
  assert.throws(() => loadConfig({ root, file, env: {} }), /broken\.toml/);
});

test('a running stack of the checkout is found, a dead one is not', () => {
  const stateFolder = path.join(root, '.rollouts');
  const endpoints = {
    temporalAddress: '127.0.0.1:7300',
    uiUrl: 'http://127.0.0.1:8300',
    llmServers: [{ url: 'http://127.0.0.1:9000', dialect: 'llama.cpp' as const, policyVersion: 0 }],
    metrics: [],
  };
  writeEndpoints(stateFolder, {
    ...endpoints,
    supervisorPid: process.pid,
    supervisorStart: startTimeOf(process.pid) as string,
  });
  const config = loadConfig({ env: {}, root });
  assert.equal(config.temporal.address, '127.0.0.1:7300');
  assert.equal(config.origins['temporal.address'], 'running stack');
  assert.equal(config.llm.servers[0]?.url, 'http://127.0.0.1:9000');
  // The same pid, given again to another process.
  writeEndpoints(stateFolder, { ...endpoints, supervisorPid: process.pid, supervisorStart: 'earlier' });
  assert.equal(loadConfig({ env: {}, root }).temporal.address, '127.0.0.1:7233');
});

test('every value can be set by an environment variable of its own', () => {
  const names = valueNames().map(environmentName);
  assert.equal(new Set(names).size, names.length);
  assert.ok(names.includes('ROLLOUTS_ROLLOUT_SAMPLING_MAX_TOKENS_PER_TURN'));
  const config = loadConfig({
    root,
    env: {
      ROLLOUTS_LLM_SERVERS: '[{"url":"http://127.0.0.1:1"}]',
      ROLLOUTS_WORKERS_HANDLERS: '["./mine.ts"]',
      ROLLOUTS_SANDBOX_BACKEND: 'process',
    },
  });
  assert.equal(config.llm.servers[0]?.dialect, 'llama.cpp');
  assert.deepEqual(config.workers.handlers, ['./mine.ts']);
  assert.equal(config.sandbox.backend, 'process');
});

test('text stays text, empty is not set, and handlers of a file are beside that file', () => {
  const file = path.join(root, 'beside.toml');
  writeFileSync(file, '[workers]\nhandlers = ["./mine.ts", "a-package"]\n');
  const env = { ROLLOUTS_TEMPORAL_NAMESPACE: '123', ROLLOUTS_LLM_THREADS: '' };
  const config = loadConfig({ root, file, env });
  assert.equal(config.temporal.namespace, '123');
  assert.equal(config.llm.threads, undefined);
  assert.deepEqual(config.workers.handlers, [path.join(root, 'mine.ts'), 'a-package']);
  assert.equal(config.derived.configFile, file);
});

test('variables that the scripts for production hand on are values, or known to be none', () => {
  const folder = fileURLToPath(new URL('../../temporal-config/production/', import.meta.url));
  const scripts = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(sh|sbatch|ya?ml|service)$|file$/.test(name))
    .map((name) => readFileSync(path.join(folder, name), 'utf8'));
  const variables = new Set(scripts.join('\n').match(/\bROLLOUTS_[A-Z_]+\b/g));
  assert.ok(variables.has('ROLLOUTS_SHARED') && variables.has('ROLLOUTS_STORE_FOLDER'));
  const known = new Set([...valueNames().map(environmentName), 'ROLLOUTS_CONFIG']);
  for (const variable of variables) {
    if (!known.has(variable)) loadConfig({ env: { [variable]: 'x' }, root });
  }
});
