import path from 'node:path';
import type { LlmServer } from '../contracts/llm.ts';

/** Flags that name LLM servers. */
export interface ServerFlags {
  /** `kind=url`, or an address alone. */
  readonly server?: readonly string[];
  readonly tokenizer?: string;
}

/** The LLM servers that flags name, for a schema to check. */
export function serversOf({ server = [], tokenizer }: ServerFlags): LlmServer[] {
  return server.map((text) => {
    const [, dialect, url] = /^([^=/]+)=(.*)$/.exec(text) ?? [];
    const named = {
      url: url ?? text,
      ...(dialect === undefined ? {} : { dialect }),
      ...(tokenizer === undefined ? {} : { tokenizer: path.resolve(tokenizer) }),
    };
    return named as LlmServer;
  });
}
