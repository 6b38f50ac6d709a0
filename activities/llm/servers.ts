import { isDeepStrictEqual } from 'node:util';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import type { ModelIdentity } from '../../contracts/trajectory.ts';
import type { Policy } from '../agent/agent.ts';
import type { ChatCodec, TextCodec } from './codec.ts';
import type { LlmDialect, ModelDescription } from './dialect.ts';
import type { HttpTimeouts } from './http.ts';
import { identityOf } from './identity.ts';
import { LlamaCppDialect } from './llama-cpp.ts';
import { ChatRenderer } from './renderer.ts';
import { unsuitable } from './template.ts';
import { readTokenizerFolder } from './tokenizer-folder.ts';

/** What is known of the model behind an address, and what was made from it. */
interface Model {
  readonly description: ModelDescription;
  readonly identity: ModelIdentity;
  readonly renderer: ChatRenderer;
  readonly codec: TextCodec;
}

/** A server with the number of rollouts that sample from it. */
interface Member {
  readonly server: LlmServer;
  readonly dialect: LlmDialect;
  rollouts: number;
  model?: Model;
}

/** The LLM servers of a run worker. A rollout stays with one server, for the sake of its prefix cache. */
export class LlmServers {
  readonly #members: Member[];

  constructor(servers: readonly LlmServer[], timeouts: Partial<HttpTimeouts> = {}) {
    this.#members = servers.map((server) => ({
      server,
      dialect: new LlamaCppDialect(server.url, timeouts),
      rollouts: 0,
    }));
  }

  /**
   * A policy on the server with the fewest rollouts among those that answer.
   * @throws RolloutError LlmUnreachable if none answers, LlmUnsuitable if the model cannot be used.
   */
  async open(_rolloutId: string, signal: AbortSignal): Promise<Policy & { close(): void }> {
    const failures: string[] = [];
    for (const member of this.#members.toSorted((a, b) => a.rollouts - b.rollouts)) {
      member.rollouts++;
      try {
        return policyOf(member, await modelOf(member, signal));
      } catch (error) {
        member.rollouts--;
        if (!(error instanceof RolloutError) || error.type !== 'LlmUnreachable') throw error;
        failures.push(messageOf(error));
      }
    }
    throw new RolloutError(
      'LlmUnreachable',
      failures.join('; ') || 'no LLM server is configured (llm.servers)',
    );
  }

  async close(): Promise<void> {
    await Promise.all(this.#members.map(({ dialect }) => dialect.close()));
  }
}

/** The member's model; looked at anew each time, since another may have been put behind the address. */
async function modelOf(member: Member, signal: AbortSignal): Promise<Model> {
  const description = await member.dialect.describe(signal).catch((error: unknown) => {
    if (!(error instanceof RolloutError) || error.type !== 'LlmRejected') throw error;
    const { url, dialect } = member.server;
    throw new RolloutError('LlmUnreachable', `${url} is no ${dialect} server`, { cause: error });
  });
  if (member.model && isDeepStrictEqual(member.model.description, description)) return member.model;
  const chat = await chatOf(member, description);
  const [identity, renderer] = await Promise.all([
    identityOf(chat, description, signal),
    ChatRenderer.create(chat, signal),
  ]);
  member.model = { description, identity, renderer, codec: chat.codec };
  return member.model;
}

/** The tokenizer and template to use: those of the folder that is named, or the server's own. */
async function chatOf({ server, dialect }: Member, { format }: ModelDescription): Promise<ChatCodec> {
  if (server.tokenizer !== undefined) return readTokenizerFolder(server.tokenizer);
  if (dialect.codec && format) return { codec: dialect.codec, format };
  const why = `a ${server.dialect} server shows no chat template: name a folder with its tokenizer (tokenizer)`;
  throw unsuitable(`${server.url}: ${why}`);
}

function policyOf(
  member: Member,
  { description, identity, renderer, codec }: Model,
): Policy & { close(): void } {
  const { server, dialect } = member;
  // Rendering asks the server's tokenizer; each request is bounded by the dialect's own time-outs.
  const unbounded = new AbortController().signal;
  let open = true;
  return {
    server: server.url,
    policyVersion: server.policyVersion,
    contextTokens: description.contextTokens,
    identity,
    generate: (request, signal) => dialect.generate({ ...request, stopIds: renderer.stopIds }, signal),
    text: (ids) => codec.detokenize(renderer.ends(ids) ? ids.slice(0, -1) : ids, unbounded),
    renderPrompt: (messages, tools) => renderer.initial(messages, unbounded, tools),
    opensThoughts: renderer.opensThoughts,
    renderDelta: (sampled, messages) => renderer.delta(sampled, messages, unbounded),
    close: () => {
      if (open) member.rollouts--;
      open = false;
    },
  };
}
