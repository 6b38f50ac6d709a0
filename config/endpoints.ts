import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { LlmServer } from '../contracts/llm.ts';
import { startTimeOf } from './process-identity.ts';

/** Addresses of the stack that runs in this checkout, so that other commands find it. */
export const Endpoints = z.object({
  temporalAddress: z.string(),
  uiUrl: z.string(),
  llmServers: z.array(LlmServer),
  /** Where its processes serve their metrics. */
  metrics: z.array(z.string()),
  /** `rollouts up`: its process id, and when it began. */
  supervisorPid: z.int(),
  supervisorStart: z.string(),
});
export type Endpoints = z.infer<typeof Endpoints>;

const fileOf = (stateFolder: string) => path.join(stateFolder, 'endpoints.json');

/** The running stack's addresses, or undefined if none was started or its supervisor is gone. */
export function readEndpoints(stateFolder: string): Endpoints | undefined {
  const file = fileOf(stateFolder);
  if (!existsSync(file)) return undefined;
  const parsed = Endpoints.safeParse(JSON.parse(readFileSync(file, 'utf8')));
  if (!parsed.success) return undefined; // written by another version of this software
  const { supervisorPid, supervisorStart } = parsed.data;
  return startTimeOf(supervisorPid) === supervisorStart ? parsed.data : undefined;
}

/** Publishes the addresses; replaces those of an earlier stack. */
export function writeEndpoints(stateFolder: string, endpoints: Endpoints): void {
  mkdirSync(stateFolder, { recursive: true });
  const file = fileOf(stateFolder);
  writeFileSync(`${file}.new`, `${JSON.stringify(endpoints, null, 2)}\n`);
  renameSync(`${file}.new`, file);
}

/** Withdraws the addresses when the stack stops. */
export function removeEndpoints(stateFolder: string): void {
  rmSync(fileOf(stateFolder), { force: true });
}
