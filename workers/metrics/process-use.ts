import type { Registry } from 'prom-client';
import eventLoopLag from 'prom-client/lib/metrics/eventLoopLag.js';
import heap from 'prom-client/lib/metrics/heapSizeAndUsed.js';
import memory from 'prom-client/lib/metrics/osMemoryHeap.js';
import processor from 'prom-client/lib/metrics/processCpuTotal.js';
import mostFiles from 'prom-client/lib/metrics/processMaxFileDescriptors.js';
import openFiles from 'prom-client/lib/metrics/processOpenFileDescriptors.js';
import startTime from 'prom-client/lib/metrics/processStartTime.js';
import version from 'prom-client/lib/metrics/version.js';

/**
 * Milliseconds between two looks at the event loop. Each wakes the process: prom-client's 10 cost an idle one 0.4 % of a
 * processor.
 */
const LOOP_LOOKS_MS = 100;

/**
 * Tells what this process uses: all of prom-client's default metrics but those of which nobody asks and everybody pays
 * for, collections of garbage (each becomes an entry that is looked at) and lists of handles.
 */
export function tellProcessUse(registry: Registry): void {
  for (const add of [processor, startTime, memory, openFiles, mostFiles, heap, version]) add(registry);
  eventLoopLag(registry, { eventLoopMonitoringPrecision: LOOP_LOOKS_MS });
}
