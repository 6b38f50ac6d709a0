export { cancelSweeper, closedSweep } from './cancel-sweep.ts';
export { llmPool } from './llm-pool.ts';
export { rollout } from './rollout.ts';
export { sandboxHost } from './sandbox-host.ts';
