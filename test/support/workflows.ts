import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger, Runtime } from '@temporalio/worker';

let bundle: ReturnType<typeof bundleWorkflowCode> | undefined;

/** The workflows' code, bundled once for all workers of this process, which log errors only. */
export function workflowBundle(): ReturnType<typeof bundleWorkflowCode> {
  try {
    Runtime.install({ logger: new DefaultLogger('ERROR') });
  } catch {
    // one runtime per process: another test of this file has installed it
  }
  bundle ??= bundleWorkflowCode({
    workflowsPath: fileURLToPath(new URL('../../workflows/index.ts', import.meta.url)),
    logger: new DefaultLogger('ERROR'),
  });
  return bundle;
}
