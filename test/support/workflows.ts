import type { DataConverter } from '@temporalio/common';
import { DefaultLogger, Runtime, type WorkflowBundle } from '@temporalio/worker';
import { workflowBundle as bundleFor } from '../../workers/workflow-bundle.ts';

/** The workflows' code for workers of this process, which log errors only. */
export function workflowBundle(converter?: DataConverter): Promise<WorkflowBundle> {
  const logger = new DefaultLogger('ERROR');
  try {
    Runtime.install({ logger });
  } catch {
    // one runtime per process: another test of this file has installed it
  }
  return bundleFor(logger, converter);
}
