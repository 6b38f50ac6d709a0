import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Config } from '../../config/load.ts';
import { apptainerProgram } from '../../config/programs.ts';
import { loadTools } from '../../config/tools.ts';
import { SandboxBackendName } from '../../contracts/sandbox.ts';
import type { Guarantees } from '../../workers/sandbox-host/backends/backend.ts';
import { makeBackend } from '../../workers/sandbox-host/backends/choose.ts';
import { missingForImages } from '../../workers/sandbox-host/images/needs.ts';
import { type CgroupRoot, ownCgroup } from '../../workers/sandbox-host/limits/cgroup.ts';
import { hostPaths } from '../../workers/sandbox-host/paths.ts';
import { type Output, tableOf } from '../output.ts';

/** What `rollouts doctor` says of one backend. */
export interface BackendReport {
  readonly backend: SandboxBackendName;
  /** True for the one that the configuration names. */
  readonly configured: boolean;
  readonly works: boolean;
  /** Why it does not work, and what to do; what it lacks if it does. */
  readonly notes: string[];
  readonly guarantees: Guarantees;
}

/** `rollouts doctor`: tries every backend for real. @returns 0 if the configured one works */
export async function doctorCommand(config: Config, output: Output): Promise<number> {
  const reports: BackendReport[] = [];
  for (const name of SandboxBackendName.options) reports.push(await examine(config, name));
  const configured = reports.find((report) => report.configured);
  const cgroups = ownCgroup();
  output.result({ backends: reports, cgroups }, () => `${textOf(reports)}\n${textOfCgroups(cgroups)}`);
  return configured?.works ? 0 : 1;
}

/** Tries a backend in a folder of its own, which is gone again when this resolves. */
async function examine(config: Config, name: SandboxBackendName): Promise<BackendReport> {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'doctor-'));
  try {
    const programs = { bwrapPath: loadTools().bwrap, apptainerPath: apptainerProgram(config) };
    const options = { backend: name, ...programs, image: config.sandbox.image };
    const backend = makeBackend(options, hostPaths(folder));
    const probe = await backend.probe();
    return {
      backend: name,
      configured: config.sandbox.backend === name,
      works: probe.works,
      notes: probe.works ? notesOn(name, probe.found) : [probe.why],
      guarantees: backend.guarantees,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function notesOn(name: SandboxBackendName, found: string | undefined): string[] {
  if (name === 'process') return ['isolates nothing: for tasks and models you trust, and never by itself'];
  const missing = name === 'apptainer' ? missingForImages() : [];
  return [
    ...(found === undefined ? [] : [`found ${found}`]),
    ...(missing.length > 0 ? [`for SIF images: ${missing.join(', ')}`] : []),
  ];
}

function textOfCgroups(cgroups: CgroupRoot): string {
  if (cgroups.folder !== null) return `cgroups: hold limits below ${cgroups.folder}`;
  return `cgroups: not used, limits are held by watching and rlimits: ${cgroups.why}`;
}

function textOf(reports: readonly BackendReport[]): string {
  const kept = (is: boolean): string => (is ? 'kept apart' : 'SHARED');
  const table = tableOf(
    ['backend', 'works', 'network', 'files', 'processes', 'user', 'system calls'],
    reports.map(({ backend, configured, works, guarantees }) => [
      backend + (configured ? ' (configured)' : ''),
      works ? 'yes' : 'NO',
      ...[guarantees.network, guarantees.files, guarantees.processes, guarantees.user].map(kept),
      guarantees.systemCalls ? 'filtered' : 'ALL',
    ]),
  );
  const notes = reports.flatMap(({ backend, guarantees, notes: lines }) =>
    [`limits: ${guarantees.limits}`, ...lines].map((line) => `${backend}: ${line}`),
  );
  return [table, ...notes].join('\n');
}
