import { setTimeout as delay } from 'node:timers/promises';
import { type Connection, isGrpcServiceError } from '@temporalio/client';
import { msToTs } from '@temporalio/common/lib/time.js';

// Numbers of gRPC's states.
const NOT_FOUND = 5;
const ALREADY_EXISTS = 6;
const DAY_MS = 86_400_000;
/** A server looks for new namespaces every ten seconds. */
const KNOWN_MS = 60_000;

/**
 * Makes a namespace, or gives the one that is there this retention: how long closed workflows stay in Temporal. What
 * rollouts made lies in the store for longer. Resolves when the server's services know it.
 */
export async function prepareNamespace(
  connection: Connection,
  namespace: string,
  retentionDays: number,
): Promise<void> {
  const retention = msToTs(retentionDays * DAY_MS);
  const { workflowService, operatorService } = connection;
  try {
    await workflowService.registerNamespace({ namespace, workflowExecutionRetentionPeriod: retention });
  } catch (error) {
    if (!isState(error, ALREADY_EXISTS)) throw error;
    await workflowService.updateNamespace({
      namespace,
      config: { workflowExecutionRetentionTtl: retention },
    });
  }
  const giveUpAt = Date.now() + KNOWN_MS;
  for (;;) {
    try {
      await operatorService.listSearchAttributes({ namespace });
      return;
    } catch (error) {
      if (!isState(error, NOT_FOUND) || Date.now() > giveUpAt) throw error;
      await delay(500);
    }
  }
}

function isState(error: unknown, state: number): boolean {
  return isGrpcServiceError(error) && Number(error.code) === state;
}
