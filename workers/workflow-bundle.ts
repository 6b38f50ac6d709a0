import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { DataConverter } from '@temporalio/common';
import { bundleWorkflowCode, type Logger, type WorkflowBundle } from '@temporalio/worker';
import { PROJECT_ROOT } from '../config/tools.ts';
import { messageOf } from '../contracts/failures.ts';

/** Where bundles are kept between starts of workers. */
const CACHE = path.join(PROJECT_ROOT, 'node_modules', '.cache', 'durable-rollouts');
/** What the bundle is made of, besides packages. */
const SOURCES = ['workflows', 'contracts', 'temporal-config/encryption'];

/**
 * The workflows' code as workers load it. To make it takes a processor for seconds, at each start of each worker; so
 * it is kept in a file that is named after all it is made from. Where no file can be kept it is made anew.
 * A converter of failures is part of it, and where it is traced what makes spans of it.
 */
export async function workflowBundle(
  logger: Logger,
  { failureConverterPath }: Pick<DataConverter, 'failureConverterPath'> = {},
  { traced = false }: { readonly traced?: boolean } = {},
): Promise<WorkflowBundle> {
  const encrypted = failureConverterPath !== undefined;
  const kind = `${traced ? 'traced-' : ''}${encrypted ? 'encrypted-' : ''}workflows`;
  const file = path.join(CACHE, `${kind}-${await digest()}.js`);
  try {
    return { code: await readFile(file, 'utf8') };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const bundle = await bundleWorkflowCode({
    workflowsPath: path.join(PROJECT_ROOT, 'workflows', 'index.ts'),
    logger,
    workflowInterceptorModules: ['unreadable-signals', 'log-lines', ...(traced ? ['tracing'] : [])].map(
      (name) => path.join(PROJECT_ROOT, 'workflows', `${name}.ts`),
    ),
    ...(failureConverterPath === undefined ? {} : { failureConverterPath }),
  });
  await keep(kind, file, bundle.code).catch((error) => {
    logger.warn('the workflow bundle is not kept', { file, problem: messageOf(error) });
  });
  return bundle;
}

async function keep(kind: string, file: string, code: string): Promise<void> {
  await mkdir(CACHE, { recursive: true });
  // Those of former versions are of no use; one that a worker reads just now is read in one piece.
  for (const name of await readdir(CACHE)) {
    if (name.startsWith(`${kind}-`)) await rm(path.join(CACHE, name), { force: true });
  }
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, code);
  await rename(draft, file);
}

/** Of the sources, and of what turns them into a bundle. */
async function digest(): Promise<string> {
  const hash = createHash('sha256').update(process.version);
  for (const folder of SOURCES) {
    for (const name of (await readdir(path.join(PROJECT_ROOT, folder))).sort()) {
      if (!name.endsWith('.ts')) continue;
      hash.update(`${folder}/${name}\0`).update(await readFile(path.join(PROJECT_ROOT, folder, name)));
    }
  }
  // Names the version of every package.
  return hash
    .update(await readFile(path.join(PROJECT_ROOT, 'package-lock.json')))
    .digest('hex')
    .slice(0, 16);
}
