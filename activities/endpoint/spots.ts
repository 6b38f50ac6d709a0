import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { ChatMessage } from '../../contracts/trajectory.ts';
import type { Policy } from '../agent/agent.ts';
import type { ToolCallParser } from '../agent/parsers/parser.ts';
import type { Continuation, Conversations, Sequence } from './conversations.ts';
import { Refused } from './refused.ts';
import type { Asked, Said } from './request.ts';

/** Where a turn is to be sampled: after tokens that begin with all of a sequence's, or on a new one. */
export interface Spot {
  readonly sequence: Sequence | undefined;
  readonly promptIds: readonly number[];
}

/** Finds where the turns of conversations are to be sampled; a sequence has one at a time. */
export class Spots {
  private readonly policy: Policy;
  private readonly parser: ToolCallParser;
  private readonly conversations: Conversations;
  private readonly busy = new Set<Sequence>();

  constructor(policy: Policy, parser: ToolCallParser, conversations: Conversations) {
    this.policy = policy;
    this.parser = parser;
    this.conversations = conversations;
  }

  /**
   * Takes the spot for the turn that a conversation asks for; to be released.
   * @throws Refused if the model's template cannot write the conversation
   */
  async take(asked: Asked, hashes: readonly string[]): Promise<Spot> {
    const open = this.conversations.brokenOff(hashes.at(-1) as string, this.busy);
    if (open) return this.claim({ sequence: open, promptIds: open.tokens.prompt });
    const known = this.conversations.continuation(asked, hashes);
    const promptIds = (known && (await this.continued(known))) ?? (await this.begun(asked));
    return this.claim({ sequence: this.conversations.longestWithin(promptIds, this.busy), promptIds });
  }

  release({ sequence }: Spot): void {
    if (sequence) this.busy.delete(sequence);
  }

  /** A message as templates take it: calls that are not known as tokens are written as text. */
  readonly told = ({ role, content, calls }: Said): ChatMessage => {
    const { parser } = this;
    const written = calls.map((call) => {
      if (parser.write) return parser.write(call.name, call.arguments);
      const why = `the tool format of this service, ${parser.name}, has no calls`;
      throw new Refused(400, 'unsupported', why, 'messages');
    });
    return { role, content: [...(content === '' ? [] : [content]), ...written].join('\n') };
  };

  /** At once with the look at what is taken: other calls look at the same time. */
  private claim(spot: Spot): Spot {
    if (spot.sequence) this.busy.add(spot.sequence);
    return spot;
  }

  /** What was sampled, and what the template writes after it; undefined if it cannot. */
  private async continued({ place, rest }: Continuation): Promise<number[] | undefined> {
    const before = place.sequence.tokens.prompt.slice(0, place.end);
    try {
      const turn = before.slice(place.start);
      return [...before, ...(await this.policy.renderDelta(turn, rest.map(this.told)))];
    } catch (error) {
      if (!isUnsuitable(error)) throw error;
      return undefined;
    }
  }

  private async begun({ said, tools }: Asked): Promise<number[]> {
    try {
      return await this.policy.renderPrompt(said.map(this.told), tools.length > 0 ? tools : undefined);
    } catch (error) {
      if (!isUnsuitable(error)) throw error;
      throw new Refused(400, 'invalid_conversation', messageOf(error), 'messages');
    }
  }
}

function isUnsuitable(error: unknown): boolean {
  return error instanceof RolloutError && error.type === 'LlmUnsuitable';
}
