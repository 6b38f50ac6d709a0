import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { loadTools } from '../../config/tools.ts';
import { SEARCH_ATTRIBUTES } from '../../contracts/search-attributes.ts';
import { waitForServer, withParentDeath } from '../../temporal-config/dev-server.ts';
import { choosePort, isFree } from '../../temporal-config/ports.ts';
import { registerSearchAttributes } from '../../temporal-config/search-attributes.ts';
import { freePort } from '../support/temporal.ts';

let taken: net.Server;
let port: number;
before(async () => {
  taken = net.createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  port = (taken.address() as net.AddressInfo).port;
});
after(() => taken.close());

test('a default port gives way to the next free one; one that a person set is reported with its setting', async () => {
  assert.equal(await isFree(port), false);
  const chosen = await choosePort('temporal.port', port, false);
  assert.ok(chosen > port && (await isFree(chosen)));
  const next = await choosePort('temporal.port', port, false);
  assert.ok(next > chosen, 'what has been chosen is not chosen again before anybody listens there');
  await assert.rejects(choosePort('temporal.port', port, true), (error: Error) => {
    assert.match(error.message, new RegExp(`port ${port} is in use: .* set temporal\\.port`));
    return true;
  });
});

test('search attributes are registered on a server that has none, and again without effect', async (t) => {
  const free = await freePort();
  const args = [
    'server',
    'start-dev',
    '--headless',
    '--ip',
    '127.0.0.1',
    '--port',
    String(free),
    '--log-level',
    'never',
  ];
  const [command, all] = withParentDeath(loadTools().temporal, args);
  const child = spawn(command, all, { stdio: 'ignore' });
  t.after(async () => {
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  const connection = await waitForServer(`127.0.0.1:${free}`, 'default');
  t.after(() => connection.close());
  const names = Object.values(SEARCH_ATTRIBUTES).map(({ name }) => name);
  assert.deepEqual((await registerSearchAttributes(connection, 'default')).sort(), names.sort());
  const { customAttributes } = await connection.operatorService.listSearchAttributes({
    namespace: 'default',
  });
  for (const name of names) assert.ok(customAttributes?.[name], name);
  assert.deepEqual(await registerSearchAttributes(connection, 'default'), []);
});

test('a server that ends while it starts is waited for no longer', async () => {
  const ended = Promise.resolve();
  const address = `127.0.0.1:${await freePort()}`;
  await assert.rejects(waitForServer(address, 'default', { ended, timeoutMs: 2 ** 31 }));
});
