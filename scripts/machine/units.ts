import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { commandsOf } from '../../test/docs/blocks.ts';
import type { Machine } from './machine.ts';
import { until } from './until.ts';

/** What `systemctl` knows them by, in the order in which they are started. */
export const UNITS = [
  ...['temporal', 'rollouts-host', 'rollouts-worker@init', 'rollouts-worker@run'],
  ...['rollouts-worker@workflow', 'rollouts-worker@eval', 'rollouts-gateway'],
] as const;

const POLICY_PORT = 9900;
const SETTINGS_FILE = '/etc/rollouts/rollouts.env';
const SQL_PASSWORD = 'machine';
const SHARDS = 4;

/** Settings beside those that the documentation names. */
const SETTINGS = {
  ROLLOUTS_TEMPORAL_ADDRESS: '127.0.0.1:7233',
  ROLLOUTS_WORKERS_HANDLERS: '["/opt/rollouts/chaos/handler.ts"]',
};

const POLICY = `[Unit]
Description=The recorded policy
[Service]
WorkingDirectory=/opt/rollouts
ExecStart=/usr/bin/node --import tsx /opt/rollouts/scripts/machine/inside/policy.ts ${POLICY_PORT}
[Install]
WantedBy=multi-user.target
`;

/** What `npm ci` and the set-up would bring is there. */
const LEFT_OUT = /^cd \/opt\/rollouts && npm ci/;

/** A database for the Temporal server, and the units, installed and started by the commands of docs/production.md. */
export async function installUnits(machine: Machine): Promise<void> {
  const page = await readFile(path.join(PROJECT_ROOT, 'docs', 'production.md'), 'utf8');
  const section = /^## systemd\n(.*?)^## /ms.exec(page)?.[1] ?? '';
  const [install, start, ...others] = [...section.matchAll(/^```sh\n(.*?)^```/gms)].map(([, block]) =>
    commandsOf(block as string).filter((command) => !LEFT_OUT.test(command)),
  );
  assert.ok(install && start && others.length === 0);

  // Those of a cluster take more of a processor than there is of it here.
  const shards = `sed -i 's/numHistoryShards: .*/numHistoryShards: ${SHARDS}/'`;
  await machine.run(`${shards} /opt/rollouts/temporal-config/production/server.yaml`);
  const role = `create role temporal superuser login password '${SQL_PASSWORD}'`;
  await machine.run(`cd / && runuser -u postgres -- psql -qc "${role}"`);
  const database = '/opt/rollouts/temporal-config/production/database.sh';
  await machine.run(`TEMPORAL_PROGRAMS=/opt/temporal SQL_PASSWORD=${SQL_PASSWORD} ${database}`, 900_000);
  for (const command of install) await machine.run(command);
  const put = (file: string, text: string) => machine.run(`cat > ${file} <<'END'\n${text}END`);
  await put('/etc/rollouts/temporal.env', `TEMPORAL_PROGRAMS=/opt/temporal\nSQL_PASSWORD=${SQL_PASSWORD}\n`);
  const settings = Object.entries(SETTINGS).map(([name, value]) => `${name}='${value}'\n`);
  await put(SETTINGS_FILE, settings.join(''));
  await put('/etc/systemd/system/policy.service', POLICY);
  await machine.run('systemctl daemon-reload; systemctl enable --now policy');
  const [server, prepare, ...rest] = start as [string, string, ...string[]];
  await machine.run(server);
  // The server takes a while until it lets a namespace be made.
  await until('the server to answer', async () => (await machine.try(prepare)).code === 0);
  for (const command of rest) await machine.run(command);
  await untilReady(machine);
  const add = `pool add llama.cpp=http://127.0.0.1:${POLICY_PORT}`;
  await until('the pool to know its server', async () => (await inUnit(machine, add)).code === 0);
}

/** A command of `rollouts`, as the units would run it. */
export function inUnit(machine: Machine, command: string) {
  const unit = `-p User=rollouts -p EnvironmentFile=${SETTINGS_FILE} -E ROLLOUTS_STATE_FOLDER=/var/lib/rollouts`;
  return machine.try(`systemd-run --pipe --wait ${unit} node /opt/rollouts/bin/rollouts.mjs ${command}`);
}

/** Waits until every unit is up and the gateway says that rollouts can be run. */
export async function untilReady(machine: Machine): Promise<void> {
  const ready = 'http://127.0.0.1:8700/readyz';
  await until('the gateway to be ready', async () => {
    const ask = `fetch("${ready}").then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(2))`;
    return (await machine.try(`node -e '${ask}'`)).code === 0;
  });
  const states = await machine.run(`systemctl is-active ${UNITS.join(' ')}`);
  assert.deepEqual(states.trim().split('\n'), Array(UNITS.length).fill('active'));
}
