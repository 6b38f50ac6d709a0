import { isDeepStrictEqual } from 'node:util';
import { RolloutError } from '../../contracts/failures.ts';
import type { LedgerObserved } from '../../contracts/ledger.ts';
import type { GenerateRequest, Sampled } from '../../contracts/llm.ts';
import type { Limits, Sampling } from '../../contracts/request.ts';
import type { AgentEnd, RunReport } from '../../contracts/stages.ts';
import type { ToolCall, ToolResult, ToolSpec } from '../../contracts/tools.ts';
import type { ChatMessage, ModelIdentity } from '../../contracts/trajectory.ts';
import type { Tool } from '../tools/tool.ts';
import { TokenSequence } from '../trajectory/tokens.ts';
import { lastTurnIds, openTurnIds, turnsIn } from '../trajectory/turns.ts';
import { spansOf } from '../trajectory/versions.ts';
import type { LedgerWriter } from './ledger-writer.ts';
import type { ToolCallParser } from './parsers/parser.ts';
import { afterThoughts } from './parsers/thoughts.ts';
import { sampleTurn } from './sample-turn.ts';
import { endOfStop, type StopSwitch } from './stop.ts';

/** The policy as the agent uses it: tokens in, tokens out, and text for the parser. */
export interface Policy {
  readonly contextTokens: number;
  readonly identity: ModelIdentity;
  /** True if the template begins the model's thoughts for it at the end of a prompt. */
  readonly opensThoughts: boolean;
  /**
   * Samples one turn, on whichever server can; an abort, also by the server, returns what it has. Waits while there
   * is none.
   */
  generate(request: GenerateRequest, signal: AbortSignal): Promise<Sampled>;
  text(ids: readonly number[]): Promise<string>;
  /** `tools` are given where the template has to describe them. */
  renderPrompt(messages: readonly ChatMessage[], tools?: readonly ToolSpec[]): Promise<number[]>;
  renderDelta(sampled: readonly number[], messages: readonly ChatMessage[]): Promise<number[]>;
}

/** Everything one agent works with. */
export interface AgentOptions {
  readonly prompt: readonly ChatMessage[];
  readonly tools: readonly Tool[];
  readonly parser: ToolCallParser;
  readonly policy: Policy;
  readonly sampling: Sampling;
  readonly limits: Limits;
  readonly ledger: LedgerWriter;
  readonly stop: StopSwitch;
  runTool(tool: Tool, call: ToolCall): Promise<ToolResult>;
  /** Told at every turn; for heartbeats. */
  progress(turn: number, tokens: number): void;
}

/** How the loop comes to a stop: at the agent's end, or at a place where another worker can go on. */
export type LoopEnd = RunReport['ended'];

/**
 * The tool-calling loop: sample a turn, record it, run its tools, record what they said, and so on until the
 * model calls no tool or one that ends it, or a limit is reached. A loop that finds records in its ledger goes on after the last
 * one; a tool call that ended is never run again.
 */
export class Agent {
  private readonly options: AgentOptions;
  private sequence!: TokenSequence;

  constructor(options: AgentOptions) {
    this.options = options;
  }

  /** @throws RolloutError for everything that is not the policy's doing. */
  async run(): Promise<LoopEnd> {
    await this.begin();
    for (;;) {
      try {
        const end = (await this.actOnLastTurn()) ?? (await this.sampleTurn());
        if (end) return end;
      } catch (error) {
        // A stop breaks off whatever is under way; what that throws then is only the echo of the stop.
        const stopped = this.stopped();
        if (stopped) return stopped;
        throw error;
      }
    }
  }

  /** The turns sampled so far; one that was broken off and is to go on is not yet one. */
  get turns(): number {
    return turnsIn(this.options.ledger.records);
  }

  /** Records the prompt, or proves that the recorded one is what would be sent now. */
  private async begin(): Promise<void> {
    const { ledger, policy, prompt, tools, parser } = this.options;
    const specs = tools.map((tool) => tool.spec);
    const promptIds = await policy.renderPrompt(prompt, parser.native ? specs : undefined);
    const recorded = ledger.records[0];
    if (recorded === undefined) {
      await ledger.append({
        kind: 'begin',
        promptIds,
        messages: [...prompt],
        tools: specs.map(({ name }) => name),
        model: policy.identity,
      });
    } else if (recorded.kind !== 'begin' || !isDeepStrictEqual(recorded.promptIds, promptIds)) {
      throw new RolloutError(
        'LlmUnsuitable',
        'the prompt would be encoded otherwise than it is recorded: model, template or handler changed',
      );
    }
    this.sequence = TokenSequence.fromLedger(ledger.records) as TokenSequence;
    if (ledger.records.length === 1 && this.roomForTokens() < 1) {
      const what = `its prompt has ${promptIds.length} tokens, which leaves no room in the ${this.limit} that`;
      throw new RolloutError('InvalidTask', `${what} the model's context and limits.maxTotalTokens allow`);
    }
  }

  /** Runs the tools of the last turn unless that is done; says how the agent ended if it called none. */
  private async actOnLastTurn(): Promise<LoopEnd | undefined> {
    const { ledger, policy } = this.options;
    const last = ledger.records.at(-1);
    if (last?.kind === 'end') return last.ended;
    if (last?.kind === 'observed') return this.endOfTurn(last);
    if (last?.kind !== 'sampled' || last.finish === 'abort') return undefined;
    if (last.calls.length === 0) return last.finish === 'length' ? this.endAtLength() : 'finished';
    const results: ToolResult[] = [];
    for (const call of last.calls) {
      const done = results.some((result) => result.ends);
      results.push(
        done ? refusal(call, 'Not run: the call before it ended the task.') : await this.answer(call),
      );
    }
    if (this.options.stop.cause) return endOfStop(this.options.stop.cause);
    const messages: ChatMessage[] = results.map((result) => ({ role: 'tool', content: result.text }));
    const delta = await policy.renderDelta(lastTurnIds(ledger.records), messages);
    // Results that leave no room for another token end the run: they are kept as text, the tokens end with the
    // turn, within every limit.
    const deltaIds = this.sequence.length + delta.length < this.limit ? delta : [];
    const observed: LedgerObserved = { kind: 'observed', turn: last.turn, results, messages, deltaIds };
    await ledger.append(observed);
    this.sequence.appendObserved(deltaIds);
    return this.endOfTurn(observed);
  }

  /** How the agent ended with a turn whose tools have run, if it did. */
  private endOfTurn({ results, deltaIds }: LedgerObserved): AgentEnd | undefined {
    if (results.some((result) => result.ends)) return 'finished';
    if (this.turns >= this.options.limits.maxTurns) return 'turns';
    return deltaIds.length === 0 ? this.fullness() : undefined;
  }

  /** A turn that was cut and called nothing: by the context if that is full, else by a token limit. */
  private endAtLength(): AgentEnd {
    return this.roomForTokens() > 0 ? 'tokens' : this.fullness();
  }

  private async answer(call: ToolCall): Promise<ToolResult> {
    const tool = this.options.tools.find((candidate) => candidate.spec.name === call.tool);
    if (call.status !== 'ok' || !tool) {
      return refusal(call, call.problem ?? `There is no tool called ${call.tool}.`);
    }
    return this.options.runTool(tool, call);
  }

  private async sampleTurn(): Promise<LoopEnd | undefined> {
    const { ledger, policy, sampling, stop, parser, tools } = this.options;
    const stopped = this.stopped();
    if (stopped) return stopped;
    const turn = this.turns;
    const room = this.roomForTokens();
    if (room < 1) return this.fullness();
    this.options.progress(turn, this.sequence.length);
    const begun = openTurnIds(ledger.records);
    const record = await sampleTurn({
      policy,
      sampling,
      promptIds: this.sequence.prompt,
      begun,
      turn,
      before: turn,
      maxTokens: Math.min(sampling.maxTokensPerTurn - begun.length, room),
      callsIn: (text) => {
        const specs = tools.map((tool) => tool.spec);
        return parser.parse(afterThoughts(text, policy.opensThoughts), specs, turn).calls;
      },
      signal: stop.generation,
    });
    if (record) {
      await ledger.append(record);
      this.sequence.appendSampled(record.ids, record.logprobs, spansOf(record));
    }
    return this.stopped();
  }

  private stopped(): LoopEnd | undefined {
    const { stop } = this.options;
    if (stop.cause) return endOfStop(stop.cause);
    return stop.pausing ? 'paused' : undefined;
  }

  /** The most tokens that the whole sequence may have: the model's context or the request's limit. */
  private get limit(): number {
    return Math.min(this.options.policy.contextTokens, this.options.limits.maxTotalTokens ?? Infinity);
  }

  private roomForTokens(): number {
    return this.limit - this.sequence.length;
  }

  /** Which of the two limits ends a run that reaches it. */
  private fullness(): AgentEnd {
    return this.limit === this.options.policy.contextTokens ? 'context' : 'tokens';
  }
}

/** The result of a call that is not run. */
function refusal({ callId, tool }: ToolCall, text: string): ToolResult {
  return { callId, tool, status: 'refused', exitCode: null, text, ms: 0 };
}
