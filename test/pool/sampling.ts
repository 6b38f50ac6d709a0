import type { PoolView } from '../../activities/llm/pool-view.ts';

/** Samples one turn after the other until it is told to stop. */
export async function sampleOn(view: PoolView, name: string, signal: AbortSignal): Promise<void> {
  const policy = await view.open(name, { signal });
  const promptIds = await policy.renderPrompt([{ role: 'user', content: name }]);
  while (!signal.aborted) await policy.generate({ promptIds, maxTokens: 5, temperature: 1, topP: 1 }, signal);
  policy.close();
}
