import { createHash } from 'node:crypto';
import type { LedgerRecord, LedgerSampled } from '../../contracts/ledger.ts';
import { sequencesOf } from '../trajectory/sequences.ts';
import { TokenSequence } from '../trajectory/tokens.ts';
import { spansOf } from '../trajectory/versions.ts';
import type { Asked, Said } from './request.ts';

/** One sequence of tokens, and its records in the ledger. */
export interface Sequence {
  readonly index: number;
  readonly tokens: TokenSequence;
  readonly records: LedgerRecord[];
}

/** Where a sequence stood after a turn: its tokens up to `end`, the turn's own from `start`. */
export interface Place {
  readonly sequence: Sequence;
  readonly start: number;
  readonly end: number;
}

/** A recorded turn that a conversation goes on from, and the messages after it. */
export interface Continuation {
  readonly place: Place;
  readonly rest: readonly Said[];
}

/**
 * Which tokens a program's conversations stand for. A conversation that repeats what was asked and what was answered,
 * and adds messages to it, goes on with the tokens that were sampled, whatever became of their text. Pure.
 */
export class Conversations {
  readonly sequences: Sequence[];
  /** By the hash of a conversation with its answer. */
  private readonly places = new Map<string, Place>();
  /** Turns that came to their end, by the call that asked for them. */
  private readonly byCall = new Map<string, LedgerSampled>();
  private readonly answerOf: (record: LedgerSampled) => Said;

  /** `answerOf` gives what a program was answered with a recorded turn. */
  constructor(records: readonly LedgerRecord[], answerOf: (record: LedgerSampled) => Said) {
    this.answerOf = answerOf;
    this.sequences = sequencesOf(records).map((own, index) => ({
      index,
      tokens: TokenSequence.fromLedger(own) as TokenSequence,
      records: own,
    }));
    for (const sequence of this.sequences) {
      for (const record of sequence.records) if (record.kind === 'sampled') this.remember(sequence, record);
    }
  }

  /** Adds a record that is in the ledger to its sequence, or the first of a new one. */
  add(record: Exclude<LedgerRecord, { kind: 'end' }>): void {
    if (record.kind === 'begin') {
      const index = this.sequences.length;
      this.sequences.push({ index, tokens: new TokenSequence(record.promptIds), records: [record] });
      return;
    }
    const sequence = this.sequences[record.sequence ?? 0] as Sequence;
    sequence.records.push(record);
    if (record.kind === 'observed') {
      sequence.tokens.appendObserved(record.deltaIds);
    } else {
      sequence.tokens.appendSampled(record.ids, record.logprobs, spansOf(record));
      this.remember(sequence, record);
    }
  }

  /** The turn that a call was or is to be answered with, if it has been sampled to its end. */
  answered(callId: string): LedgerSampled | undefined {
    return this.byCall.get(callId);
  }

  /** A sequence that ends with a turn for this very conversation which was broken off. */
  brokenOff(conversation: string, busy: ReadonlySet<Sequence>): Sequence | undefined {
    return this.sequences.find((sequence) => {
      const last = sequence.records.at(-1);
      if (busy.has(sequence)) return false;
      return last?.kind === 'sampled' && last.finish === 'abort' && last.asked?.conversation === conversation;
    });
  }

  /** The latest recorded turn that a conversation goes on from with messages that are no answers. */
  continuation({ said }: Asked, hashes: readonly string[]): Continuation | undefined {
    for (let count = said.length - 1; count > 0; count--) {
      if (said[count]?.role === 'assistant') return undefined;
      const place = this.places.get(hashes[count] as string);
      if (place) return { place, rest: said.slice(count) };
    }
    return undefined;
  }

  /** The longest sequence whose tokens, all of them, are how a prompt begins: it can go on with that prompt. */
  longestWithin(promptIds: readonly number[], busy: ReadonlySet<Sequence>): Sequence | undefined {
    return this.sequences
      .filter((sequence) => {
        const { tokens, records } = sequence;
        if (busy.has(sequence)) return false;
        const last = records.at(-1);
        // What was broken off waits for the rest of its turn; what was not yet sampled for, for just its own prompt.
        const goesOn =
          last?.kind === 'sampled' ? last.finish !== 'abort' : tokens.length === promptIds.length;
        return goesOn && tokens.isPrefixOf(promptIds);
      })
      .sort((a, b) => b.tokens.length - a.tokens.length)[0];
  }

  private remember(sequence: Sequence, record: LedgerSampled): void {
    if (record.finish === 'abort' || !record.asked) return;
    const { conversation, id } = record.asked;
    const first = sequence.records.find((one) => one.kind === 'sampled' && one.turn === record.turn);
    const start = first?.kind === 'sampled' ? first.promptLength : record.promptLength;
    const place = { sequence, start, end: record.promptLength + record.ids.length };
    this.places.set(followed(conversation, this.answerOf(record)), place);
    this.byCall.set(id, record);
  }
}

/** Hashes of a conversation after none, one, … and all of its messages. */
export function conversationHashes({ said, tools }: Asked): string[] {
  const hashes = [sha256(JSON.stringify(tools))];
  for (const message of said) hashes.push(followed(hashes.at(-1) as string, message));
  return hashes;
}

/**
 * Hash of a conversation and one more message. Programs trim what they were answered and write its calls anew, which
 * makes no other conversation of it.
 */
function followed(before: string, { role, content, calls }: Said): string {
  const text = role === 'assistant' ? content.trim() : content;
  return sha256(
    JSON.stringify([before, role, text, calls.map((call) => [call.name, compact(call.arguments)])]),
  );
}

function compact(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json));
  } catch {
    return json;
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
