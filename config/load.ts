import { existsSync, readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parse as parseToml } from 'smol-toml';
import type { z } from 'zod';
import { RolloutError } from '../contracts/failures.ts';
import { readEndpoints } from './endpoints.ts';
import { environmentName, isText, valueNames } from './names.ts';
import { ConfigSchema, type ConfigValues } from './schema.ts';
import { PROJECT_ROOT } from './tools.ts';

type Tree = { [key: string]: unknown };

/** Where an effective value came from. */
export type Origin = string;

/** The effective configuration with the origin of every value. */
export interface Config extends ConfigValues {
  /** By dotted name, e.g. `workers.runSlots` → `environment ROLLOUTS_WORKERS_RUN_SLOTS`. */
  readonly origins: Readonly<Record<string, Origin>>;
  /** Absolute paths and names that follow from the values. */
  readonly derived: {
    readonly stateFolder: string;
    readonly storeFolder: string;
    readonly host: string;
    /** Where spans are sent by OTLP over HTTP; null: nothing is traced. */
    readonly tracesEndpoint: string | null;
    /** The configuration file that was read, if there is one. */
    readonly configFile: string | null;
  };
}

/** Where to look; everything has the default of a person's shell in a checkout. */
export interface LoadOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** Values from flags, as a tree like the file's. */
  readonly flags?: Tree;
  /** Configuration file; otherwise ROLLOUTS_CONFIG, otherwise rollouts.toml in the checkout if there. */
  readonly file?: string;
  readonly root?: string;
}

/**
 * Reads the configuration once: flags over environment over file over the stack that runs in this checkout
 * over defaults.
 * @throws RolloutError InvalidRequest that names the value, its origin and what was expected.
 */
export function loadConfig(options: LoadOptions = {}): Config {
  const env = options.env ?? process.env;
  const root = options.root ?? PROJECT_ROOT;
  const origins: Record<string, Origin> = {};
  const tree: Tree = {};

  const file = options.file ?? env.ROLLOUTS_CONFIG ?? path.join(root, 'rollouts.toml');
  const stated = options.file !== undefined || env.ROLLOUTS_CONFIG !== undefined;
  const fromFile = readFile(file, stated);
  const fromEnvironment = readEnvironment(env);
  const stateFolder = path.resolve(
    root,
    (options.flags?.state as { folder?: string } | undefined)?.folder ??
      (fromEnvironment.state as { folder?: string } | undefined)?.folder ??
      (fromFile.state as { folder?: string } | undefined)?.folder ??
      '.rollouts',
  );

  overlay(tree, stackValues(stateFolder), origins, () => 'running stack');
  overlay(tree, fromFile, origins, () => `file ${file}`);
  overlay(tree, fromEnvironment, origins, (name) => `environment ${environmentName(name)}`);
  overlay(tree, options.flags ?? {}, origins, () => 'flag');

  const parsed = ConfigSchema.safeParse(tree);
  if (!parsed.success) throw invalid(parsed.error, origins);
  const values = parsed.data;
  return {
    ...values,
    origins,
    derived: {
      stateFolder,
      storeFolder: path.resolve(root, values.store.folder ?? path.join(stateFolder, 'store')),
      configFile: existsSync(file) ? path.resolve(file) : null,
      tracesEndpoint: values.traces.endpoint ?? standardTracesEndpoint(env),
      host: values.sandbox.host ?? os.hostname().replace(/[^A-Za-z0-9._-]/g, '-'),
    },
  };
}

/** As the standard variables of OpenTelemetry say; an address for all signals has a path for each below it. */
function standardTracesEndpoint(env: NodeJS.ProcessEnv): string | null {
  if (env.OTEL_SDK_DISABLED === 'true' || env.OTEL_TRACES_EXPORTER === 'none') return null;
  if (env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) return env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT;
  const all = env.OTEL_EXPORTER_OTLP_ENDPOINT;
  return all ? `${all.replace(/\/+$/, '')}/v1/traces` : null;
}

function readFile(file: string, stated: boolean): Tree {
  if (!existsSync(file)) {
    if (stated) throw new RolloutError('InvalidRequest', `configuration file ${file} does not exist`);
    return {};
  }
  try {
    return besideFile(file, parseToml(readFileSync(file, 'utf8')));
  } catch (error) {
    throw new RolloutError('InvalidRequest', `configuration file ${file}: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** Paths of handler modules and tokenizers in a file are relative to it, wherever the command is given. */
function besideFile(file: string, tree: Tree): Tree {
  const resolved = (name: unknown) =>
    typeof name === 'string' && name.startsWith('.') ? path.resolve(path.dirname(file), name) : name;
  const workers = tree.workers as { handlers?: unknown } | undefined;
  if (Array.isArray(workers?.handlers)) workers.handlers = workers.handlers.map(resolved);
  const llm = tree.llm as { servers?: unknown } | undefined;
  for (const server of Array.isArray(llm?.servers) ? llm.servers : []) {
    if (server?.tokenizer !== undefined) server.tokenizer = resolved(server.tokenizer);
  }
  return tree;
}

/** Values of the stack that `rollouts up` runs in this checkout: its ports, and its LLM if it has one. */
function stackValues(stateFolder: string): Tree {
  const endpoints = readEndpoints(stateFolder);
  if (!endpoints) return {};
  return {
    temporal: { address: endpoints.temporalAddress, uiUrl: endpoints.uiUrl },
    llm: { servers: endpoints.llmServers },
  };
}

const NOT_VALUES = new Set([
  'ROLLOUTS_CONFIG',
  'ROLLOUTS_CACHE',
  // Of the scripts for Slurm, which hand their variables on.
  'ROLLOUTS_CHECKOUT',
  'ROLLOUTS_SHARED',
  'ROLLOUTS_DATABASE',
]);

function readEnvironment(env: NodeJS.ProcessEnv): Tree {
  const names = new Map(valueNames().map((name) => [environmentName(name), name]));
  const tree: Tree = {};
  for (const [variable, text] of Object.entries(env)) {
    if (!variable.startsWith('ROLLOUTS_') || NOT_VALUES.has(variable) || !text) continue;
    const name = names.get(variable);
    if (!name) {
      throw new RolloutError(
        'InvalidRequest',
        `environment ${variable} is no configuration value; \`rollouts config\` lists them`,
      );
    }
    set(tree, name.split('.'), isText(name) ? text : fromText(text));
  }
  return tree;
}

/** Numbers, booleans, lists and objects are written as JSON; everything else is text. */
function fromText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text; // plain text is what most values are: not an error
  }
}

function set(tree: Tree, keys: string[], value: unknown): void {
  let node = tree;
  for (const key of keys.slice(0, -1)) {
    node[key] ??= {};
    node = node[key] as Tree;
  }
  node[keys.at(-1) as string] = value;
}

function overlay(
  into: Tree,
  from: Tree,
  origins: Record<string, Origin>,
  origin: (name: string) => Origin,
  prefix = '',
): void {
  for (const [key, value] of Object.entries(from)) {
    if (value === undefined) continue;
    const name = prefix ? `${prefix}.${key}` : key;
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) {
      const child = (into[key] ?? {}) as Tree;
      into[key] = child;
      overlay(child, value as Tree, origins, origin, name);
    } else {
      into[key] = value;
      origins[name] = origin(name);
    }
  }
}

function invalid(error: z.ZodError, origins: Record<string, Origin>): RolloutError {
  const lines = error.issues.map((issue) => {
    const name = issue.path.join('.');
    const owner = Object.keys(origins).find((key) => name === key || name.startsWith(`${key}.`));
    return `${name} (${owner ? origins[owner] : 'default'}): ${issue.message}`;
  });
  return new RolloutError('InvalidRequest', `configuration: ${lines.join('; ')}`);
}
