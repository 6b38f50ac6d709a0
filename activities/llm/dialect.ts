import type { Generated, GenerateRequest } from '../../contracts/llm.ts';
import type { ChatFormat, TextCodec } from './codec.ts';

/** What a server says of its model, as far as it says it. */
export interface ModelDescription {
  readonly model: string;
  /** Tokens of context for one request; null where the server doesn't tell. */
  readonly contextTokens: number | null;
  readonly vocabularySize: number | null;
  readonly parameterCount: number | null;
  readonly fileBytes: number | null;
  /** Null where the server doesn't show its chat template. */
  readonly format: ChatFormat | null;
}

/** Requests at a server, of all its callers. */
export interface ServerLoad {
  readonly running: number;
  readonly waiting: number;
}

/** What can be done to a server that a trainer swaps weights on. */
export interface ServerControl {
  /**
   * Lets no request go on: `abort` ends those under way, which return the tokens that they have with finish
   * `abort`; `keep` leaves them standing still. New ones wait.
   */
  pause(mode: 'abort' | 'keep', signal: AbortSignal): Promise<void>;
  resume(signal: AbortSignal): Promise<void>;
  /**
   * Loads the weights of a folder on the server's machine, names their version, and drops what was cached of
   * older ones. @throws LlmRejected if they cannot be loaded.
   */
  loadWeights(weights: { folder: string; version: string }, signal: AbortSignal): Promise<void>;
  /** The version of the weights, as it was named last. */
  version(signal: AbortSignal): Promise<string>;
}

/**
 * Told of tokens as they arrive, in order, each exactly once; `logprobs` aligns with `ids`. What was told
 * stands even when `generate` throws afterwards.
 */
export type OnTokens = (ids: readonly number[], logprobs: readonly number[]) => void;

/**
 * One kind of LLM server, spoken to in token ids. Every method throws a `RolloutError`:
 * `LlmUnreachable` (no answer, cut off, too slow, overloaded: another try may help), `LlmRejected` (the
 * server's own words) or `LlmInvalidAnswer` (an answer that cannot be trained on). An aborted signal makes
 * `generate` return what it has; the other methods throw the signal's reason.
 */
export interface LlmDialect {
  readonly name: string;
  /** The server's address. */
  readonly url: string;
  /** The server's own tokenizer, where it can tell special tokens from text that looks like them; else null. */
  readonly codec: TextCodec | null;
  /**
   * Samples one turn. `ids` holds every sampled token including the end-of-turn token when there was one
   * (`finish: 'stop'`). An abort ends the server's work and returns the tokens received (`finish: 'abort'`).
   */
  generate(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated>;
  describe(signal: AbortSignal): Promise<ModelDescription>;
  /**
   * Log-probabilities of the tokens from position `from` (at least 1) to the last, each after those before it, in
   * the distribution that `sampling` would have sampled from; at temperature 0 the model's own. Null where the
   * server cannot give them.
   */
  score(
    ids: readonly number[],
    from: number,
    sampling: { readonly temperature: number; readonly topP: number },
    signal: AbortSignal,
  ): Promise<number[] | null>;
  /**
   * Ids of a text in which special tokens count, by the server's own tokenizer, to compare another one with it;
   * null where the server has no such call.
   */
  encode(text: string, signal: AbortSignal): Promise<number[] | null>;
  /** Returns when the server is ready to generate. */
  health(signal: AbortSignal): Promise<void>;
  /** Null where the server does not tell. */
  load(signal: AbortSignal): Promise<ServerLoad | null>;
  /** Null where the server has no such calls. */
  readonly control: ServerControl | null;
  /** Connections opened so far. As long as it stays, the server has not been started again. */
  readonly connections: number;
  /** Closes the connections. */
  close(): Promise<void>;
}
