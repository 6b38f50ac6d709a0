import type { Policy } from '../../activities/agent/agent.ts';
import type { GenerateRequest } from '../../contracts/llm.ts';

const END = 0;

/** Letters as tokens: every token of a run is known, so runs can be compared exactly. */
export const encode = (text: string): number[] => [...text].map((letter) => letter.codePointAt(0) as number);
export const decode = (ids: readonly number[]): string =>
  String.fromCodePoint(...ids.filter((id) => id !== END));

export interface LetterPolicyOptions {
  /** Reply n follows n tool results in the prompt, minus what of it is in the prompt already. */
  readonly replies: readonly string[];
  readonly contextTokens?: number;
  /** Told of each request before it is answered; may be slow, or throw. */
  onGenerate?(request: GenerateRequest, signal: AbortSignal): void | Promise<void>;
}

/** A policy that plays recorded replies. It stands in where a test needs a run's exact tokens. */
export function letterPolicy(options: LetterPolicyOptions): Policy {
  return {
    contextTokens: options.contextTokens ?? 10_000,
    identity: { name: 'letters', model_hash: 'a', tokenizer_hash: 'b', template_hash: 'c' },
    opensThoughts: false,
    generate: async (request, signal) => {
      await options.onGenerate?.(request, signal);
      const prompt = decode(request.promptIds);
      const turn = prompt.split('[tool]').length - 1;
      const said = prompt.slice(prompt.lastIndexOf('[assistant]') + '[assistant]'.length);
      const rest = [...encode((options.replies[turn] ?? '').slice(said.length)), END];
      const most = signal.aborted ? Math.min(3, request.maxTokens) : request.maxTokens;
      const ids = rest.slice(0, most);
      // One whose last token has come is whole, whatever comes after.
      const finish = rest.length <= most ? 'stop' : signal.aborted ? 'abort' : 'length';
      const versions = [{ version: 4, start: 0, end: ids.length }];
      return { ids, logprobs: ids.map(() => -0.5), finish, server: 'http://127.0.0.1:1', versions };
    },
    text: async (ids) => decode(ids),
    renderPrompt: async (messages) =>
      encode(`${messages.map((message) => message.content).join('')}[assistant]`),
    renderDelta: async (_sampled, messages) =>
      encode(`${messages.map((message) => `[tool]${message.content}`).join('')}[assistant]`),
  };
}
