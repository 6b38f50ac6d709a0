import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Agent } from '../../activities/agent/agent.ts';
import { LedgerWriter } from '../../activities/agent/ledger-writer.ts';
import { fenced } from '../../activities/agent/parsers/fenced.ts';
import { StopSwitch } from '../../activities/agent/stop.ts';
import type { Tool } from '../../activities/tools/tool.ts';
import { messagesOf } from '../../activities/trajectory/assemble.ts';
import { TokenSequence } from '../../activities/trajectory/tokens.ts';
import { turnsIn } from '../../activities/trajectory/turns.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { GenerateRequest } from '../../contracts/llm.ts';
import { Limits, Sampling } from '../../contracts/request.ts';
import { decode, letterPolicy } from '../support/letters.ts';

const echo: Tool = {
  spec: {
    name: 'echo',
    description: '',
    parameters: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    fence: { language: 'echo', argument: 'text' },
  },
  run: async () => assert.fail('tools are run by the test'),
};

interface Play {
  replies: readonly string[];
  records?: readonly LedgerRecord[];
  limits?: Partial<Limits>;
  sampling?: Partial<Sampling>;
  contextTokens?: number;
  stop?: StopSwitch;
  onGenerate?: (request: GenerateRequest, stop: StopSwitch) => void;
  onTool?: () => void;
  /** Throws before the record of this number is written: the worker dies there. */
  dieBefore?: number;
}

/** Plays an agent against recorded replies. */
async function play(given: Play) {
  const records: LedgerRecord[] = [...(given.records ?? [])];
  const stop = given.stop ?? new StopSwitch();
  const ran: string[] = [];
  const ledger = new LedgerWriter([...records], async (seq, record) => {
    assert.equal(seq, records.length, 'records are appended in order');
    if (seq === given.dieBefore) throw new Error('died');
    records.push(structuredClone(record));
  });
  const { onGenerate } = given;
  const policy = letterPolicy({
    replies: given.replies,
    ...(given.contextTokens === undefined ? {} : { contextTokens: given.contextTokens }),
    ...(onGenerate ? { onGenerate: (request) => onGenerate(request, stop) } : {}),
  });
  const agent = new Agent({
    prompt: [{ role: 'user', content: 'task' }],
    tools: [echo],
    parser: fenced,
    policy,
    sampling: Sampling.parse(given.sampling ?? {}),
    limits: Limits.parse(given.limits ?? {}),
    ledger,
    stop,
    runTool: async (_tool, call) => {
      ran.push(call.callId);
      given.onTool?.();
      return {
        callId: call.callId,
        tool: call.tool,
        status: 'ok',
        exitCode: 0,
        text: `<${call.arguments.text}>`,
        ms: 0,
        ...(call.arguments.text === 'finish' ? { ends: true } : {}),
      };
    },
    progress: () => {},
  });
  return { end: agent.run(), records, ran };
}

const replies = ['Let me see.\n```echo\none\n```', '```echo\ntwo\n```', 'done'];

/** Times and durations differ between runs; everything else must not. */
function comparable(records: readonly LedgerRecord[]) {
  return records.map((record) => (record.kind === 'sampled' ? { ...record, startedAt: '', ms: 0 } : record));
}

test('turns follow each other as prompt, sampled tokens and delta, exactly', async () => {
  const { end, records, ran } = await play({ replies });
  assert.equal(await end, 'finished');
  assert.deepEqual(ran, ['0.0', '1.0']);
  const sequence = TokenSequence.fromLedger(records);
  assert.equal(
    sequence && decode(sequence.prompt),
    'task[assistant]Let me see.\n```echo\none\n```[tool]<one>[assistant]```echo\ntwo\n```[tool]<two>[assistant]done',
  );
});

test('a worker that dies before any record goes on to the same tokens, and repeats no recorded call', async () => {
  const undisturbed = await play({ replies });
  await undisturbed.end;
  for (let dieBefore = 0; dieBefore < undisturbed.records.length; dieBefore++) {
    const first = await play({ replies, dieBefore });
    await assert.rejects(first.end, /died/);
    const observed = first.records
      .filter((record) => record.kind === 'observed')
      .map(({ turn }) => `${turn}.0`);
    const second = await play({ replies, records: first.records });
    assert.equal(await second.end, 'finished');
    assert.deepEqual(comparable(second.records), comparable(undisturbed.records));
    assert.deepEqual(
      second.ran.filter((callId) => observed.includes(callId)),
      [],
    );
  }
});

test('a call that ends the task is the last that runs, and the last turn, also after a death', async () => {
  const ending = ['```echo\none\n```', '```echo\nfinish\n```\n```echo\nlate\n```', 'never sampled'];
  const undisturbed = await play({ replies: ending });
  assert.equal(await undisturbed.end, 'finished');
  assert.deepEqual(undisturbed.ran, ['0.0', '1.0']);
  const last = undisturbed.records.at(-1);
  assert.deepEqual(last?.kind === 'observed' && last.results.map(({ status }) => status), ['ok', 'refused']);
  for (let kept = 1; kept <= undisturbed.records.length; kept++) {
    const again = await play({ replies: ending, records: undisturbed.records.slice(0, kept) });
    assert.equal(await again.end, 'finished');
    assert.deepEqual(comparable(again.records), comparable(undisturbed.records));
  }
});

test('a run that died at its last turn samples no other', async () => {
  const undisturbed = await play({ replies, limits: { maxTurns: 1 } });
  assert.equal(await undisturbed.end, 'turns');
  const again = await play({ replies, limits: { maxTurns: 1 }, records: [...undisturbed.records] });
  assert.equal(await again.end, 'turns');
  assert.equal(again.records.length, undisturbed.records.length);
});

test('a turn that a pause or a deploy breaks off keeps its tokens, and the next entry finishes it', async () => {
  const whole = await play({ replies });
  await whole.end;
  const stops: [string, (stop: StopSwitch) => void][] = [
    ['shutdown', (stop) => stop.throw({ kind: 'shutdown' })],
    ['paused', (stop) => stop.requestPause()],
  ];
  for (const [name, brakeOff] of stops) {
    const ran: string[] = [];
    let records: readonly LedgerRecord[] = [];
    let ends = 0;
    // Broken off after three tokens again and again: every entry goes on where the one before stopped.
    for (let end = name; end === name; ends++) {
      const entry = await play({ replies, records, onGenerate: (_request, stop) => brakeOff(stop) });
      end = await entry.end;
      records = entry.records;
      ran.push(...entry.ran);
    }
    assert.ok(ends > 10, `${ends} entries`);
    assert.deepEqual(ran, ['0.0', '1.0'], 'each call is read from all parts of its turn and run once');
    assert.deepEqual(TokenSequence.fromLedger(records), TokenSequence.fromLedger(whole.records));
    assert.deepEqual(messagesOf(records), messagesOf(whole.records));
    assert.equal(turnsIn(records), turnsIn(whole.records));
  }
});

test('what a turn has sampled before it was broken off counts towards its length', async () => {
  const story = ['a long story without end'];
  const whole = await play({ replies: story, sampling: { maxTokensPerTurn: 8 } });
  assert.equal(await whole.end, 'tokens');
  let records: readonly LedgerRecord[] = [];
  for (let end = 'paused'; end === 'paused'; ) {
    const onGenerate = (_request: unknown, stop: StopSwitch) => stop.requestPause();
    const entry = await play({ replies: story, sampling: { maxTokensPerTurn: 8 }, records, onGenerate });
    end = await entry.end;
    records = entry.records;
  }
  assert.deepEqual(TokenSequence.fromLedger(records), TokenSequence.fromLedger(whole.records));
});

test('a pause lets the tool call under way end, and samples nothing after it', async () => {
  let stop: StopSwitch | undefined;
  const first = await play({
    replies,
    onGenerate: (_request, given) => {
      stop = given;
    },
    onTool: () => stop?.requestPause(),
  });
  assert.equal(await first.end, 'paused');
  assert.deepEqual(
    first.records.map(({ kind }) => kind),
    ['begin', 'sampled', 'observed'],
  );
  const second = await play({ replies, records: first.records });
  assert.equal(await second.end, 'finished');
  assert.deepEqual([...first.ran, ...second.ran], ['0.0', '1.0']);
});

test('every cause of a stop ends the run as it should', async () => {
  const stopped = async (cause: Parameters<StopSwitch['throw']>[0]) =>
    (await play({ replies, onGenerate: (_request, stop) => stop.throw(cause) })).end;
  assert.equal(await stopped({ kind: 'cancel', reason: 'stale' }), 'aborted');
  assert.equal(await stopped({ kind: 'deadline' }), 'deadline');
  await assert.rejects(stopped({ kind: 'superseded' }), { type: 'FenceRefused' });
  await assert.rejects(stopped({ kind: 'lost', message: 'host' }), { type: 'SandboxLost' });
});

test('limits end the run with what they are called', async () => {
  const ended = async (given: Omit<Play, 'replies'>) => (await play({ replies, ...given })).end;
  assert.equal(await ended({ limits: { maxTurns: 1 } }), 'turns');
  assert.equal(await ended({ limits: { maxTurns: 3 } }), 'finished');
  assert.equal(await ended({ contextTokens: 30 }), 'context');
  assert.equal(await ended({ limits: { maxTotalTokens: 30 } }), 'tokens');
  assert.equal(
    await (await play({ replies: ['a long story'], sampling: { maxTokensPerTurn: 4 } })).end,
    'tokens',
  );
});

test('no sequence is ever longer than its limits, and none of its sampled tokens is lost', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 16, max: 120 }),
      fc.integer({ min: 16, max: 120 }),
      async (contextTokens, maxTotalTokens) => {
        const requests: GenerateRequest[] = [];
        const { end, records } = await play({
          replies,
          contextTokens,
          limits: { maxTotalTokens },
          onGenerate: (request) => requests.push(request),
        });
        const ended = await end;
        const limit = Math.min(contextTokens, maxTotalTokens);
        const sequence = TokenSequence.fromLedger(records);
        assert.ok(sequence && sequence.length <= limit);
        for (const { promptIds, maxTokens } of requests) assert.ok(promptIds.length + maxTokens <= limit);
        const sampled = records.flatMap((record) => (record.kind === 'sampled' ? record.ids : []));
        assert.deepEqual(
          sequence.outputIds.filter((_, at) => sequence.lossMask[at] === 1),
          sampled,
        );
        if (ended !== 'finished') assert.equal(ended, contextTokens <= maxTotalTokens ? 'context' : 'tokens');
        // The same limit ends it when it is taken up again.
        assert.equal(
          await (await play({ replies, records, contextTokens, limits: { maxTotalTokens } })).end,
          ended,
        );
      },
    ),
  );
});

test('results too long for the context end the run with the turn that asked for them', async () => {
  const long = [`\`\`\`echo\n${'x'.repeat(60)}\n\`\`\``, 'never sampled'];
  const { end, records, ran } = await play({ replies: long, contextTokens: 100 });
  assert.equal(await end, 'context');
  assert.deepEqual(ran, ['0.0']);
  const last = records.at(-1);
  assert.ok(last?.kind === 'observed');
  assert.deepEqual(last.deltaIds, []);
  assert.equal(last.messages[0]?.content, `<${'x'.repeat(60)}>`);
});

test('a server that samples more tokens than it was asked for is refused, within every limit', async () => {
  const { end, records } = await play({
    replies: ['a long story'],
    sampling: { maxTokensPerTurn: 4 },
    onGenerate: (request) => Object.assign(request, { maxTokens: 5 }),
  });
  await assert.rejects(end, {
    type: 'LlmInvalidAnswer',
    message: /returned 5 tokens where 4 were asked for/,
  });
  assert.equal(records.length, 1);
});

test('a prompt that leaves no room for an answer is the task’s fault', async () => {
  await assert.rejects((await play({ replies, contextTokens: 15 })).end, {
    type: 'InvalidTask',
    message: /its prompt has 15 tokens, which leaves no room in the 15/,
  });
});

test('a call that cannot be run goes back to the model with what is wrong', async () => {
  const { end, records, ran } = await play({ replies: ['```echo\nnever closed', 'I see'] });
  assert.equal(await end, 'finished');
  assert.deepEqual(ran, []);
  const observed = records.find((record) => record.kind === 'observed');
  assert.equal(observed?.kind === 'observed' && observed.results[0]?.status, 'refused');
  assert.match(observed?.kind === 'observed' ? (observed.messages[0]?.content ?? '') : '', /clos/i);
});

test('a turn cut in the middle of its second call runs the first, says what is wrong, and goes on', async () => {
  const cut = '```echo\none\n```\n```echo\ntw';
  const { end, records, ran } = await play({
    replies: [`${cut}o\n\`\`\``, 'I see'],
    sampling: { maxTokensPerTurn: cut.length },
  });
  assert.equal(await end, 'finished');
  assert.deepEqual(ran, ['0.0']);
  const [sampled, observed] = records.slice(1);
  assert.ok(sampled?.kind === 'sampled' && observed?.kind === 'observed');
  assert.equal(sampled.finish, 'length');
  assert.deepEqual(
    sampled.calls.map(({ status }) => status),
    ['ok', 'unclosed'],
  );
  assert.deepEqual(
    observed.messages.map(({ content }) => content),
    ['<one>', 'the ```echo block was not closed: end it with a line of ```'],
  );
});

test('a prompt that would be encoded otherwise than it is recorded is refused', async () => {
  const { end, records } = await play({ replies });
  await end;
  const begin = records[0];
  assert.ok(begin?.kind === 'begin');
  begin.promptIds[0] = 7;
  await assert.rejects((await play({ replies, records: [begin] })).end, { type: 'LlmUnsuitable' });
});
