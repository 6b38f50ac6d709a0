export { cancelSweeper, closedSweep } from './cancel-sweep.ts';
export { llmPool } from './llm-pool.ts';
export { lookout } from './lookout.ts';
export { rollout } from './rollout.ts';
export { rolloutBatch } from './rollout-batch.ts';
export { rolloutGroup } from './rollout-group.ts';
export { sandboxHost } from './sandbox-host.ts';
