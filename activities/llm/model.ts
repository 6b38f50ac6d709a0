import { isDeepStrictEqual } from 'node:util';
import { RolloutError } from '../../contracts/failures.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import type { ModelIdentity } from '../../contracts/trajectory.ts';
import type { ChatCodec, TextCodec } from './codec.ts';
import type { LlmDialect, ModelDescription } from './dialect.ts';
import { identityOf, PROBE } from './identity.ts';
import { ChatRenderer } from './renderer.ts';
import { unsuitable } from './template.ts';
import { readTokenizerFolder, type TokenizerFolder } from './tokenizer-folder.ts';

/** The model behind an address, and what is needed to write its prompts. */
export interface Model {
  readonly description: ModelDescription;
  readonly contextTokens: number;
  readonly identity: ModelIdentity;
  readonly renderer: ChatRenderer;
  readonly codec: TextCodec;
}

/**
 * Looks at the model behind a server's address; `known`, what was found there before, stands if nothing changed.
 * @throws RolloutError LlmUnreachable if no server of the kind answers, LlmUnsuitable if its model, tokenizer or
 * template cannot be used.
 */
export async function openModel(
  server: LlmServer,
  dialect: LlmDialect,
  signal: AbortSignal,
  known?: Model,
): Promise<Model> {
  const description = await dialect.describe(signal).catch((error: unknown) => {
    if (!(error instanceof RolloutError) || error.type !== 'LlmRejected') throw error;
    throw new RolloutError('LlmUnreachable', `${server.url} is no ${server.dialect} server`, {
      cause: error,
    });
  });
  if (known && isDeepStrictEqual(known.description, description)) return known;
  const contextTokens = Math.min(
    description.contextTokens ?? Number.POSITIVE_INFINITY,
    server.contextTokens ?? Number.POSITIVE_INFINITY,
  );
  if (!Number.isFinite(contextTokens)) {
    throw unsuitable(`${server.url} doesn't tell its context limit: name it with the server (contextTokens)`);
  }
  const chat = await chatOf(server, dialect, description, signal);
  const [identity, renderer] = await Promise.all([
    identityOf(chat, description, signal),
    ChatRenderer.create(chat, signal),
  ]);
  return { description, contextTokens, identity, renderer, codec: chat.codec };
}

/** Folders that were read: a tokenizer takes seconds and a hundred megabytes, and servers share them. */
const folders = new Map<string, ReturnType<typeof readTokenizerFolder>>();

/** What a tokenizer's folder holds, read once. @throws RolloutError LlmUnsuitable */
export function tokenizerFolder(folder: string): Promise<TokenizerFolder> {
  const reading = folders.get(folder) ?? readTokenizerFolder(folder);
  folders.set(folder, reading);
  return reading.catch((error: unknown) => {
    folders.delete(folder);
    throw error;
  });
}

/** The tokenizer and template to use: those of the folder that is named, or the server's own. */
async function chatOf(
  { url, dialect: kind, tokenizer }: LlmServer,
  dialect: LlmDialect,
  { format }: ModelDescription,
  signal: AbortSignal,
): Promise<ChatCodec> {
  if (tokenizer === undefined) {
    if (dialect.codec && format) return { codec: dialect.codec, format };
    const why = `a ${kind} server doesn't show its chat template: name a folder with its tokenizer (tokenizer)`;
    throw unsuitable(`${url}: ${why}`);
  }
  const folder = await tokenizerFolder(tokenizer);
  for (const text of PROBE) {
    const theirs = await dialect.encode(text, signal);
    if (theirs === null) break;
    const ours = await folder.codec.tokenize(text, { parseSpecial: true }, signal);
    if (!isDeepStrictEqual(ours, theirs)) {
      const at = ours.findIndex((id, index) => id !== theirs[index]);
      const what = `token ${at} is ${ours[at]} by the folder, ${theirs[at]} by the server`;
      throw unsuitable(`the tokenizer in ${tokenizer} is not that of ${url}: of "${text}", ${what}`);
    }
  }
  return folder;
}
