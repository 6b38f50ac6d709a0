import type { LedgerBegin, LedgerObserved, LedgerSampled } from '../../contracts/ledger.ts';
import type { Limits, Sampling } from '../../contracts/request.ts';
import type { AgentEnd } from '../../contracts/stages.ts';
import type { Policy } from '../agent/agent.ts';
import type { LedgerWriter } from '../agent/ledger-writer.ts';
import type { ToolCallParser } from '../agent/parsers/parser.ts';
import { afterThoughts } from '../agent/parsers/thoughts.ts';
import { sampleTurn } from '../agent/sample-turn.ts';
import { messagesOf } from '../trajectory/assemble.ts';
import { openTurnIds, turnsIn } from '../trajectory/turns.ts';
import { Conversations, conversationHashes, type Sequence } from './conversations.ts';
import { Refused } from './refused.ts';
import { type Answer, type Reading, refusalOf, replyOf, saidIn } from './reply.ts';
import { type Asked, forParsing, readRequest } from './request.ts';
import { type Spot, Spots } from './spots.ts';

/** Everything that calls are answered with. */
export interface AnswersOptions {
  readonly policy: Policy;
  readonly parser: ToolCallParser;
  readonly sampling: Sampling;
  readonly limits: Limits;
  readonly ledger: LedgerWriter;
  /** Told of each turn; for heartbeats. */
  progress(turn: number, tokens: number): void;
}

/** Turns that were broken off count for nothing, but a program that gives its calls up for ever is to end. */
const mostRequests = (maxTurns: number): number => 2 * maxTurns + 100;

/** A turn that is being sampled. */
interface UnderWay {
  readonly conversation: string;
  readonly signal: AbortSignal;
  readonly done: Promise<unknown>;
}

/**
 * Answers the calls of a program by turns of the policy, any number at once. What a call is answered with is in the
 * ledger first.
 */
export class Answers {
  private readonly options: AnswersOptions;
  private readonly reading: Reading;
  private readonly conversations: Conversations;
  private readonly spots: Spots;
  /** Sampled to their end for a call that was given up; the next one that asks the same gets them. */
  private readonly untaken = new Map<string, LedgerSampled>();
  private readonly underWay = new Set<UnderWay>();
  private recording: Promise<unknown> = Promise.resolve();
  /** The limit that the last call was refused for. */
  private reachedLimit: AgentEnd | undefined;

  constructor(options: AnswersOptions) {
    this.options = options;
    this.reading = { parser: options.parser, opensThoughts: options.policy.opensThoughts };
    this.conversations = new Conversations(options.ledger.records, (record) => saidIn(record, this.reading));
    this.spots = new Spots(options.policy, options.parser, this.conversations);
  }

  get limit(): AgentEnd | undefined {
    return this.reachedLimit;
  }

  /**
   * The answer of a call; undefined if `signal` aborted before there was one.
   * @throws RolloutError for everything that is neither the program's nor the policy's doing.
   */
  async answer(callId: string, body: string, signal: AbortSignal): Promise<Answer | undefined> {
    try {
      const asked = readRequest(body);
      const record = await this.turnFor(callId, asked, signal);
      if (!record) return undefined;
      this.reachedLimit = undefined;
      return this.reply(record, asked);
    } catch (error) {
      if (error instanceof Refused) return refusalOf(error);
      throw error;
    }
  }

  /** The program has given a call up that was answered. */
  notTaken(callId: string): void {
    const record = this.conversations.answered(callId);
    if (record?.asked) this.untaken.set(record.asked.conversation, record);
  }

  private async turnFor(
    callId: string,
    asked: Asked,
    signal: AbortSignal,
  ): Promise<LedgerSampled | undefined> {
    const hashes = conversationHashes(asked);
    const conversation = hashes.at(-1) as string;
    const untaken = this.untaken.get(conversation);
    this.untaken.delete(conversation);
    const known = this.conversations.answered(callId) ?? untaken;
    if (known) return known;
    // A call for the same that was given up just now leaves tokens, which this one goes on with.
    const left = [...this.underWay].filter((one) => one.conversation === conversation && one.signal.aborted);
    await Promise.allSettled(left.map(({ done }) => done));
    const { ledger, limits, parser } = this.options;
    const requests = ledger.records.filter(({ kind }) => kind === 'sampled').length;
    const turns = turnsIn(ledger.records) + this.underWay.size;
    if (turns >= limits.maxTurns || requests >= mostRequests(limits.maxTurns)) {
      throw this.refused('turns', 403, `the ${limits.maxTurns} turns of this rollout are used up`);
    }
    if (asked.tools.length > 0 && !parser.native) {
      const why = `the tool format of this service, ${parser.name}, is described by prompts alone: ask without tools`;
      throw new Refused(400, 'unsupported', why, 'tools');
    }
    const spot = await this.spots.take(asked, hashes);
    const done = this.sample(spot, asked, { id: callId, conversation }, signal);
    const one = { conversation, signal, done };
    this.underWay.add(one);
    try {
      return await done;
    } finally {
      this.underWay.delete(one);
      this.spots.release(spot);
    }
  }

  private async sample(
    spot: Spot,
    asked: Asked,
    call: NonNullable<LedgerSampled['asked']>,
    signal: AbortSignal,
  ): Promise<LedgerSampled | undefined> {
    const { sequence, promptIds } = spot;
    const { policy, sampling, ledger, parser } = this.options;
    const room = this.mostTokens - promptIds.length;
    if (room < 1) throw this.full(promptIds.length);
    const begun = sequence ? openTurnIds(sequence.records) : [];
    const turn = sequence ? turnsIn(sequence.records) : 0;
    const before = turnsIn(ledger.records) + this.underWay.size;
    const wanted = Math.min(sampling.maxTokensPerTurn, asked.maxTokens ?? Infinity) - begun.length;
    const tools = asked.tools.map(forParsing);
    this.options.progress(before, promptIds.length);
    const record = await sampleTurn({
      policy,
      sampling,
      promptIds,
      begun,
      turn,
      before,
      // One more than none, where another call for the same had asked for fewer.
      maxTokens: Math.min(Math.max(1, wanted), room),
      callsIn: (text) => {
        if (tools.length === 0) return [];
        return parser.parse(afterThoughts(text, policy.opensThoughts), tools, turn).calls;
      },
      signal,
    });
    return record && this.keep({ ...record, asked: call }, spot, asked);
  }

  /** Records a turn with what precedes it; gives it back unless it was broken off. */
  private keep(
    record: LedgerSampled,
    { sequence, promptIds }: Spot,
    asked: Asked,
  ): Promise<LedgerSampled | undefined> {
    const kept = this.recording.then(async () => {
      const index = sequence?.index ?? this.conversations.sequences.length;
      const own = index === 0 ? {} : { sequence: index };
      if (!sequence) {
        await this.record({ ...this.beginning(asked), ...own, promptIds: [...promptIds] });
      } else if (promptIds.length > sequence.tokens.length) {
        const deltaIds = promptIds.slice(sequence.tokens.length);
        const messages = asked.said.slice(messagesOf(sequence.records).length).map(this.spots.told);
        await this.record({
          kind: 'observed',
          ...own,
          turn: record.turn - 1,
          results: [],
          messages,
          deltaIds,
        });
      }
      const full = { ...record, ...own };
      await this.record(full);
      return full.finish === 'abort' ? undefined : full;
    });
    this.recording = kept.catch(() => {}); // its caller has the error
    return kept;
  }

  private beginning({ said, tools }: Asked): Omit<LedgerBegin, 'promptIds'> {
    return {
      kind: 'begin',
      messages: said.map(this.spots.told),
      tools: tools.map(({ name }) => name),
      model: this.options.policy.identity,
    };
  }

  private async record(record: LedgerBegin | LedgerObserved | LedgerSampled): Promise<void> {
    await this.options.ledger.append(record);
    this.conversations.add(record);
  }

  private reply(record: LedgerSampled, asked: Asked): Answer {
    const sequence = this.conversations.sequences[record.sequence ?? 0] as Sequence;
    const parts = sequence.records.filter((one) => one.kind === 'sampled' && one.turn === record.turn);
    const promptTokens = (parts[0] as LedgerSampled).promptLength;
    const sampledTokens = record.promptLength + record.ids.length - promptTokens;
    const turn = { record, promptTokens, sampledTokens };
    return replyOf(turn, asked, this.reading, this.options.policy.identity.name);
  }

  private get mostTokens(): number {
    return Math.min(this.options.policy.contextTokens, this.options.limits.maxTotalTokens ?? Infinity);
  }

  private full(promptTokens: number): Refused {
    // In the words that clients look for.
    const words = `This model's maximum context length is ${this.mostTokens} tokens. However, your messages resulted in ${promptTokens} tokens.`;
    const end = this.mostTokens === this.options.policy.contextTokens ? 'context' : 'tokens';
    return this.refused(end, 400, words, 'context_length_exceeded');
  }

  private refused(limit: AgentEnd, status: number, message: string, code: string = limit): Refused {
    this.reachedLimit = limit;
    return new Refused(status, code, message, status === 400 ? 'messages' : null);
  }
}
