export { rollout } from './rollout.ts';
