import { after, before, beforeEach } from 'node:test';
import type { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { dataConverterOf } from '../../temporal-config/encryption/data-converter.ts';
import { startTestServer, type TestServer } from '../support/temporal.ts';
import { startScriptedWorkers, usual } from './scripted.ts';

/** A real server, scripted stages and a client, for all tests of a file; each test begins with the usual script. */
export interface ScriptedService {
  readonly workers: Awaited<ReturnType<typeof startScriptedWorkers>>;
  readonly client: RolloutClient;
  /** Of the Temporal server. */
  readonly address: string;
  readonly databaseFile: string;
}

/** To be called once at the top of a test file; what it returns is filled before the first test. */
export function scriptedService(
  store?: TrajectoryStore,
  settings?: Record<string, string>,
  encryptionKeys?: string,
  initSlots?: number,
): ScriptedService {
  const service = {} as { -readonly [part in keyof ScriptedService]: ScriptedService[part] };
  let server: TestServer | undefined;
  before(async () => {
    server = await startTestServer(settings);
    const { address, databaseFile } = server;
    const config = loadConfig({ env: {}, flags: { temporal: { address, encryptionKeys } } });
    Object.assign(service, { address, databaseFile });
    service.workers = await startScriptedWorkers(address, store, dataConverterOf(config), initSlots);
    service.client = await RolloutClient.connect(config);
  });
  after(async () => {
    await service.client?.close();
    await service.workers?.stop();
    await server?.stop();
  });
  beforeEach(() => {
    Object.assign(service.workers.script, usual);
    service.workers.calls.length = 0;
  });
  return service;
}
