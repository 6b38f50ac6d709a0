import { statSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { resolve } from 'import-meta-resolve';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { Task } from '../../contracts/task.ts';
import { PythonPools, type PythonPrograms } from '../grading/python-pools.ts';
import { code, codeFraction } from './code/code.ts';
import type { AgentHandler } from './handler.ts';
import { math, mathPlain } from './math/math.ts';
import { stemHandler } from './stem/stem.ts';
import { sweHandler } from './swe/swe.ts';

/** What the configuration (`workers`) says to handlers that come with the project. */
export interface HandlerOptions {
  /** Search service of `stem`. */
  readonly searchUrl?: string | undefined;
  /** Below which tasks of `swe` may name what lies on this host; anywhere if there is none. */
  readonly taskFolders?: readonly string[];
}

/** The handlers that come with the project. */
export function builtIn(options: HandlerOptions = {}): AgentHandler[] {
  return [math, mathPlain, code, codeFraction, stemHandler(options), sweHandler(options)] as AgentHandler[];
}

/** Where there is none: only handlers that ask it notice. */
const NO_PYTHON: PythonPrograms = {
  ask: async () => {
    throw new RolloutError('GraderFailed', 'these handlers were loaded without a Python to grade with');
  },
};

/** A task whose data is not what its handler's schema says: where, and what is wrong there. */
export class InvalidTaskData extends RolloutError {
  readonly problems: readonly { readonly path: readonly PropertyKey[]; readonly message: string }[];

  constructor(task: Task, problems: InvalidTaskData['problems']) {
    const said = problems.map(
      ({ path, message }) => `${path.length > 0 ? path.join('.') : 'task'}: ${message}`,
    );
    super('InvalidTask', `task ${task.id}: ${said.join('; ')}`);
    this.problems = problems;
  }
}

/** Handlers by name, and the Python programs that they check and grade with. */
export class HandlerRegistry {
  readonly python: PythonPrograms;
  private readonly byName = new Map<string, AgentHandler>();

  constructor(handlers: readonly AgentHandler[] = builtIn(), python: PythonPrograms = NO_PYTHON) {
    this.python = python;
    for (const handler of handlers) this.add(handler);
  }

  /** @throws RolloutError InvalidRequest if the name is taken. */
  add(handler: AgentHandler): void {
    if (this.byName.has(handler.name)) {
      throw new RolloutError('InvalidRequest', `two handlers are called ${handler.name}`);
    }
    this.byName.set(handler.name, handler);
  }

  /** @throws RolloutError UnknownHandler that lists the known ones. */
  get(name: string): AgentHandler {
    const handler = this.byName.get(name);
    if (!handler) {
      const known = [...this.byName.keys()].join(', ');
      throw new RolloutError('UnknownHandler', `no handler is called "${name}"; known: ${known}`);
    }
    return handler;
  }

  /** All handlers, by name. */
  list(): AgentHandler[] {
    return [...this.byName.values()].sort((a, b) => a.name.localeCompare(b.name));
  }

  /**
   * The handler of a task and the task's data as its schema reads it.
   * @throws RolloutError UnknownHandler; InvalidTaskData naming each wrong field.
   */
  open(task: Task): { handler: AgentHandler; data: unknown } {
    const handler = this.get(task.handler);
    const parsed = handler.schema.safeParse(task.data);
    if (!parsed.success) throw new InvalidTaskData(task, parsed.error.issues);
    return { handler, data: parsed.data };
  }

  /** {@link open}, and what the handler itself checks. */
  async admit(task: Task, signal?: AbortSignal): Promise<{ handler: AgentHandler; data: unknown }> {
    const opened = this.open(task);
    const { handler, data } = opened;
    try {
      await handler.check?.({ task: data, python: this.python, ...(signal && { signal }) });
    } catch (error) {
      if (!(error instanceof RolloutError) || error.type !== 'InvalidTask') throw error;
      throw new RolloutError('InvalidTask', `task ${task.id}: ${error.message}`, { cause: error });
    }
    return opened;
  }
}

/**
 * The built-in handlers and those of the modules `handlers`: a path (relative to `folder`) or a package name,
 * whose default export is an AgentHandler or a list of them. `python`: says the path of the interpreter that they
 * check and grade with, once one is needed.
 * @throws RolloutError InvalidRequest that names the module and what is wrong with it.
 */
export async function loadHandlers(
  { handlers, ...options }: HandlerOptions & { readonly handlers: readonly string[] },
  { folder = process.cwd(), python }: { readonly folder?: string; readonly python: () => string },
): Promise<HandlerRegistry> {
  const registry = new HandlerRegistry(builtIn(options), new PythonPools(python));
  for (const name of handlers) {
    for (const handler of await importHandlers(name, folder)) registry.add(handler);
  }
  return registry;
}

async function importHandlers(name: string, folder: string): Promise<AgentHandler[]> {
  const file = path.resolve(folder, name);
  const isPath =
    name.startsWith('.') || path.isAbsolute(name) || statSync(file, { throwIfNoEntry: false })?.isFile();
  let module: { default?: unknown };
  try {
    module = await import(isPath ? pathToFileURL(file).href : packageFrom(folder, name));
  } catch (error) {
    const hint =
      isPath && /\.[jt]s$/.test(file)
        ? '; it must be an ES module: "type": "module" in its package.json, or the ending .mts'
        : '';
    throw new RolloutError('InvalidRequest', `handler module ${name}: ${messageOf(error)}${hint}`, {
      cause: error,
    });
  }
  const exported = Array.isArray(module.default) ? module.default : [module.default];
  for (const candidate of exported) {
    const missing = missingPart(candidate);
    if (missing) {
      throw new RolloutError(
        'InvalidRequest',
        `handler module ${name}: its default export has no ${missing}; see docs/handlers.md`,
      );
    }
  }
  return exported as AgentHandler[];
}

/** Where a package is: installed where the user is, else beside this project. */
function packageFrom(folder: string, name: string): string {
  try {
    return resolve(name, pathToFileURL(path.join(folder, 'package.json')).href);
  } catch {
    return name; // Node looks beside this file, and says what it does not find
  }
}

function missingPart(candidate: unknown): string | undefined {
  const handler = (candidate ?? {}) as Partial<AgentHandler>;
  if (typeof handler.name !== 'string' || handler.name === '') return 'name';
  if (typeof handler.schema?.safeParse !== 'function') return 'schema (a zod schema)';
  const loop = handler.run === undefined ? (['tools', 'prompt'] as const) : (['run'] as const);
  for (const method of [...loop, 'evaluate'] as const) {
    if (typeof handler[method] !== 'function') return `${method}()`;
  }
  return undefined;
}
