import { mkdtempSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import { pino } from 'pino';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { tokenCommand } from '../../client/commands/token.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { makeApp } from '../../gateway/app.ts';
import { readTokens } from '../../gateway/auth.ts';
import type { App } from '../../gateway/gateway.ts';
import { type ScriptedService, scriptedService } from '../workflows/scripted-service.ts';

/** Gateways of one test file over one scripted service, all with one store. */
export interface Served {
  readonly service: ScriptedService;
  readonly store: TrajectoryStore;
  readonly folder: string;
  /** Listens until the file's tests are over. */
  gateway(options?: GatewayOptions): Promise<{ readonly url: string; readonly app: App }>;
  /** A bearer token, as `rollouts token` makes it. */
  token(name: string, scopes: string): Promise<string>;
  readonly tokensFile: string;
}

export interface GatewayOptions {
  /** Values of the configuration's section. */
  readonly settings?: Record<string, unknown>;
  /** The same of its section `llm`. */
  readonly llm?: Record<string, unknown>;
  /** The same of its section `rollout`. */
  readonly rollout?: Record<string, unknown>;
  /** Only who has a token of the file is let in. */
  readonly guarded?: boolean;
}

/** To be called once at the top of a test file. */
export function served(settings?: Record<string, string>, initSlots?: number): Served {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'gateway-'));
  after(() => rmSync(folder, { recursive: true }));
  const storeFolder = path.join(folder, 'store');
  const store = new TrajectoryStore(storeFolder);
  const service = scriptedService(store, settings, undefined, initSlots);
  const tokensFile = path.join(folder, 'tokens.json');
  const apps: App[] = [];
  after(async () => {
    for (const app of apps) await app.close();
  });
  return {
    service,
    store,
    folder,
    tokensFile,
    async gateway({ settings: gateway = {}, llm = {}, rollout = {}, guarded = false } = {}) {
      const app = await makeApp({
        config: loadConfig({ env: {}, flags: { gateway, llm, rollout, store: { folder: storeFolder } } }),
        client: service.client,
        store,
        handlers: await loadHandlers({ handlers: [] }, { python: () => loadTools().python }),
        tokens: guarded ? readTokens(tokensFile) : undefined,
        log: pino({ level: 'silent' }),
      });
      apps.push(app);
      await app.listen({ host: '127.0.0.1', port: 0 });
      const { port } = app.server.address() as AddressInfo;
      return { app, url: `${gateway.certificate ? 'https' : 'http'}://127.0.0.1:${port}` };
    },
    async token(name, scopes) {
      const config = loadConfig({ env: {}, flags: { gateway: { tokens: tokensFile } } });
      let made = '';
      const result = (value: unknown) => {
        made = (value as { token: string }).token;
      };
      await tokenCommand(config, name, scopes, { json: true, note: () => {}, result });
      return made;
    },
  };
}
