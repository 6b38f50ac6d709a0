import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import type { Policy } from '../agent/agent.ts';
import type { LlmDialect } from './dialect.ts';
import { makeDialect } from './dialects.ts';
import type { HttpTimeouts } from './http.ts';
import { type Model, openModel } from './model.ts';

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
      dialect: makeDialect(server.dialect, server.url, timeouts),
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
        // Looked at anew each time, since another model may have been put behind the address.
        member.model = await openModel(member.server, member.dialect, signal, member.model);
        return policyOf(member, member.model);
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

function policyOf(
  member: Member,
  { contextTokens, identity, renderer, codec }: Model,
): Policy & { close(): void } {
  const { server, dialect } = member;
  // Rendering asks the server's tokenizer; each request is bounded by the dialect's own time-outs.
  const unbounded = new AbortController().signal;
  let open = true;
  return {
    server: server.url,
    policyVersion: server.policyVersion,
    contextTokens,
    identity,
    generate: async (request, signal) => {
      const generated = await dialect.generate({ ...request, stopIds: renderer.stopIds }, signal);
      // Broken off when its last token had come but not yet word of the end: there is nothing to go on with.
      const whole = generated.finish === 'abort' && renderer.ends(generated.ids);
      return whole ? { ...generated, finish: 'stop' } : generated;
    },
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
