import { z } from 'zod';

/**
 * Server dialects that this version speaks. `prorl` is the token-level `/generate` that ProRL Agent's rollout
 * workers call.
 */
export const LlmDialectName = z.enum(['llama.cpp', 'vllm', 'sglang', 'tensorrt-llm', 'prorl']);
export type LlmDialectName = z.infer<typeof LlmDialectName>;

/** One LLM server. */
export const LlmServer = z.object({
  url: z.url({ protocol: /^https?$/ }),
  dialect: LlmDialectName.default('llama.cpp'),
  /** Version of the weights it serves, recorded with every token. */
  policyVersion: z.int().min(0).default(0),
  /**
   * Folder with the model's tokenizer.json, tokenizer_config.json and chat template. Without it the server's
   * own are used, where it offers them.
   */
  tokenizer: z.string().min(1).optional(),
  /** Context of one request in tokens, for servers that don't tell theirs. */
  contextTokens: z.int().min(1).optional(),
});
export type LlmServer = z.infer<typeof LlmServer>;

/** Why generation ended: the model's end-of-turn token, the token limit, or an abort from our side. */
export type FinishReason = 'stop' | 'length' | 'abort';

/** One request for tokens. */
export interface GenerateRequest {
  /** The whole prompt as token ids. */
  readonly promptIds: readonly number[];
  readonly maxTokens: number;
  readonly temperature: number;
  readonly topP: number;
  readonly seed?: number;
  /** Tokens that end the turn, besides those that the server itself ends it at. */
  readonly stopIds?: readonly number[];
}

/** Tokens `[start, end)` of a turn that were sampled with weights of one version, as the server names it. */
export interface VersionSpan {
  readonly version: string;
  readonly start: number;
  readonly end: number;
}

/** Tokens `[start, end)` of a turn that were sampled under one policy version. */
export const PolicySpan = z.object({
  version: z.int().min(0),
  start: z.int().min(0),
  end: z.int().min(0),
});
export type PolicySpan = z.infer<typeof PolicySpan>;

/** What one turn sampled. `ids` and `logprobs` (natural log, of the distribution sampled from) align. */
export interface Generated {
  readonly ids: number[];
  readonly logprobs: number[];
  readonly finish: FinishReason;
  /** Where the server tells them: the versions of its weights that sampled the turn, without gaps. */
  readonly versions?: readonly VersionSpan[];
}

/** What a policy sampled: tokens of one server, each with its policy version. */
export interface Sampled extends Omit<Generated, 'versions'> {
  /** The server's address. */
  readonly server: string;
  /** Spans of `ids` without gaps, in order. */
  readonly versions: readonly PolicySpan[];
}
