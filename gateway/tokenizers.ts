import { makeDialect } from '../activities/llm/dialects.ts';
import { tokenizerHashOf } from '../activities/llm/identity.ts';
import { tokenizerFolder } from '../activities/llm/model.ts';
import { TokenTexts } from '../activities/llm/token-texts.ts';
import type { RolloutClient } from '../client/rollout-client.ts';
import type { LlmServer } from '../contracts/llm.ts';

/** Milliseconds that a server may take to show its tokenizer. */
const LOOK_WITHIN_MS = 5_000;

/**
 * Finds the tokenizer that made a trajectory's tokens, by its hash: among those of the pool's servers and of the
 * servers that are configured, in their folders or at the servers themselves.
 */
export class Tokenizers {
  readonly #client: RolloutClient;
  readonly #configured: readonly LlmServer[];
  readonly #known = new Map<string, TokenTexts>();

  constructor(client: RolloutClient, configured: readonly LlmServer[]) {
    this.#client = client;
    this.#configured = configured;
  }

  /** Undefined if no server that is known has this tokenizer; what was found stays known when the server goes. */
  async find(hash: string): Promise<TokenTexts | undefined> {
    const known = this.#known.get(hash);
    if (known) return known;
    const signal = AbortSignal.timeout(LOOK_WITHIN_MS);
    for (const server of [...(await this.#members(hash)), ...this.#configured]) {
      try {
        const texts = await textsOf(server, hash, signal);
        if (!texts) continue;
        this.#known.set(hash, texts);
        return texts;
      } catch {
        // it does not answer, or its folder is not here: another may
      }
    }
    return undefined;
  }

  /** None while the pool's workflow does not answer. */
  async #members(hash: string): Promise<LlmServer[]> {
    try {
      const { connection } = this.#client.temporal;
      const until = Date.now() + LOOK_WITHIN_MS;
      const { members } = await connection.withDeadline(until, () => this.#client.pool.state());
      return members.filter(({ facts }) => facts.tokenizerHash === hash).map(({ server }) => server);
    } catch {
      return [];
    }
  }
}

async function textsOf(
  { url, dialect: kind, tokenizer }: LlmServer,
  hash: string,
  signal: AbortSignal,
): Promise<TokenTexts | undefined> {
  if (tokenizer !== undefined) {
    const chat = await tokenizerFolder(tokenizer);
    return (await tokenizerHashOf(chat.codec, signal)) === hash ? TokenTexts.from(chat, signal) : undefined;
  }
  const dialect = makeDialect(kind, url);
  const { format } = await dialect.describe(signal);
  const { codec } = dialect;
  if (!codec || !format || (await tokenizerHashOf(codec, signal)) !== hash) return undefined;
  return TokenTexts.from({ codec, format }, signal);
}
