/** Text to token ids and back: a server's own tokenizer, or one read from a folder. */
export interface TextCodec {
  /** Token ids of a text, without a leading begin token. Special-token text counts only with parseSpecial. */
  tokenize(text: string, options: { parseSpecial: boolean }, signal: AbortSignal): Promise<number[]>;
  /** Text of token ids, special tokens included; bytes that form no character become U+FFFD. */
  detokenize(ids: readonly number[], signal: AbortSignal): Promise<string>;
}

/** How a model's conversations are written. */
export interface ChatFormat {
  /** The Jinja chat template. */
  readonly template: string;
  /** Text of the model's end token. */
  readonly eosText: string;
  readonly bosText: string;
  /** Further variables of the template, by name. */
  readonly variables?: Readonly<Record<string, unknown>>;
  /** Texts of all control tokens, where they are known. */
  readonly controlTokens?: readonly string[];
  /** Tokens that end a turn beside the template's own, as the model's generation settings say. */
  readonly stopIds?: readonly number[];
}

/** Everything that turns messages into tokens. */
export interface ChatCodec {
  readonly codec: TextCodec;
  readonly format: ChatFormat;
}
