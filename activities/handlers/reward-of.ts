import { RolloutError } from '../../contracts/failures.ts';
import type { Reward } from '../../contracts/trajectory.ts';
import type { BoundSandbox } from '../sandbox/bound.ts';
import { checkedOutcome, checkedReward, usualOutcome } from './checked.ts';
import type { AgentHandler, EvaluateContext } from './handler.ts';

/** An answer that was recorded has no sandbox behind it. */
const NO_SANDBOX = new Proxy({} as BoundSandbox, {
  get(_, name) {
    const what = `outcome asks the sandbox (${String(name)}), which a recorded answer has not`;
    throw new RolloutError('HandlerFailed', `${what}: the handler needs a method recorded()`);
  },
});

/** The outcome that a recorded answer stands for, and the conversation that led to it. */
export async function recordedOutcome(handler: AgentHandler, task: unknown, response: string) {
  const prompt = (await handler.prompt?.(task)) ?? [];
  const messages = [...prompt, { role: 'assistant' as const, content: response }];
  const given = { task, messages, said: [response], answer: response, sandbox: NO_SANDBOX };
  const outcome = handler.recorded
    ? await handler.recorded({ task, response, messages })
    : ((await handler.outcome?.(given)) ?? usualOutcome(response));
  return { outcome: checkedOutcome(outcome), messages };
}

/**
 * The reward of an answer, for a handler's own tests: no service, no sandbox unless one is given.
 * @throws what the schema, `recorded`, `outcome` or `evaluate` throw
 */
export async function rewardOf<T>(
  handler: AgentHandler<T>,
  data: unknown,
  response: string,
  given: Partial<Pick<EvaluateContext<T>, 'sandbox' | 'each' | 'python' | 'judge'>> = {},
): Promise<Reward> {
  const task = handler.schema.parse(data);
  const { outcome, messages } = await recordedOutcome(handler as AgentHandler, task, response);
  const missing = (what: string) => async () => {
    throw new RolloutError('GraderFailed', `evaluate asks for ${what}, and the test gave none`);
  };
  return checkedReward(
    await handler.evaluate({
      task,
      outcome,
      messages,
      sandbox: given.sandbox ?? missing('a sandbox'),
      each: given.each ?? missing('sandboxes'),
      python: given.python ?? { ask: missing('Python') },
      ...(given.judge && { judge: given.judge }),
      seconds: 60,
      signal: new AbortController().signal,
    }),
  );
}
