import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { ApplicationFailure } from '@temporalio/activity';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { SandboxBackendName } from '../../contracts/sandbox.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { BACKENDS, until } from '../sandbox/support.ts';
import { decode, letterPolicy } from '../support/letters.ts';
import { stages } from './support.ts';

/** Two turns with a tool of the program's own, and a last one. */
const CONVERSATION = `
messages = [user('task')]
for step in range(2):
    answer = ask(messages, temperature=0.1, user='me')
    messages += [said(answer), tool(f'<{step}>')]
answer = ask(messages)
print(said(answer)['content'], answer[1]['usage']['completion_tokens'])
`;
const replies = ['one', ' two ', 'three'];
const WHOLE = 'one[tool]<0>[assistant] two [tool]<1>[assistant]three';

const sampledIn = ({ output_ids, loss_mask }: Trajectory) =>
  decode(output_ids.filter((_, at) => loss_mask[at] === 1));
const sampled = (records: readonly LedgerRecord[]) => records.filter((one) => one.kind === 'sampled');

for (const backend of BACKENDS) {
  test(`a program’s conversation is one sequence of exactly the tokens sampled: ${backend}`, async (t) => {
    await holdsOneConversation(t, backend);
  });
}

async function holdsOneConversation(t: TestContext, backend: SandboxBackendName): Promise<void> {
  const s = await stages(t, { policy: letterPolicy({ replies }), program: CONVERSATION, backend });
  const report = await s.run(await s.init());
  assert.deepEqual([report.ended, report.turns], ['finished', 3]);
  const [trajectory, ...more] = await s.trajectories();
  assert.deepEqual(more, []);
  assert.ok(trajectory);
  assert.equal(decode(trajectory.input_ids), 'task[assistant]');
  assert.equal(decode(trajectory.output_ids), WHOLE);
  assert.equal(sampledIn(trajectory), 'one two three');
  assert.deepEqual(
    trajectory.messages.map(({ role, content }) => `${role}: ${content}`),
    ['user: task', 'assistant: one', 'tool: <0>', 'assistant:  two ', 'tool: <1>', 'assistant: three'],
  );
  assert.deepEqual(await s.outcome(), { answer: 'three 6\n' });
}

test('what a program asks aside, and another way on from an earlier turn, are sequences of their own', async (t) => {
  const s = await stages(t, {
    policy: letterPolicy({ replies }),
    program: `
first = ask([user('task')])
ask([user('aside')])
ask([user('task'), said(first), tool('a')])
ask([user('task'), said(first), tool('b')])
altered = dict(said(first), content='altered')
ask([user('task'), altered, tool('c')])
trimmed = dict(said(first), content='  one ', refusal=None)
ask([user('task'), trimmed, tool('d')])
`,
  });
  const report = await s.run(await s.init());
  assert.equal(report.turns, 6);
  const trajectories = await s.trajectories();
  assert.deepEqual(
    trajectories.map((one) => [
      one.sequence_index,
      one.sequence_count,
      decode(one.input_ids),
      decode(one.output_ids),
    ]),
    [
      [0, 5, 'task[assistant]', 'one[tool]a[assistant] two '],
      [1, 5, 'aside[assistant]', 'one'],
      // Goes on with the very tokens, which are trained on in the first.
      [2, 5, 'task[assistant]one[tool]b[assistant]', ' two '],
      [3, 5, 'taskalteredc[assistant]', 'one'],
      [4, 5, 'task[assistant]one[tool]d[assistant]', ' two '],
    ],
  );
  const [, , fork] = trajectories;
  assert.equal(fork?.input_ids.includes(0), true, 'the end token that was sampled is in the prompt');
});

test('calls at once go on with sequences of their own', async (t) => {
  let waiting: (() => void)[] = [];
  const s = await stages(t, {
    policy: letterPolicy({
      replies,
      // Each waits for another to be under way.
      onGenerate: async (request) => {
        if (decode(request.promptIds) === 'task[assistant]') return;
        await new Promise<void>((resolve) => {
          waiting.push(resolve);
          if (waiting.length < 2) return;
          for (const go of waiting) go();
          waiting = [];
        });
      },
    }),
    program: `
from concurrent.futures import ThreadPoolExecutor
first = ask([user('task')])
def both(*conversations):
    with ThreadPoolExecutor() as pool: return list(pool.map(ask, conversations))
two, other = both(*[[user('task'), said(first), tool('a')]] * 2)
both([user('task'), said(first), tool('a'), said(two), tool('b')], [user('aside')])
`,
  });
  assert.equal((await s.run(await s.init())).turns, 5);
  const lines = (await s.trajectories()).map(({ input_ids, output_ids }) => [
    decode(input_ids),
    decode(output_ids),
  ]);
  const ways = [
    ['aside[assistant]', 'one'],
    ['task[assistant]one[tool]a[assistant]', ' two '],
    ['task[assistant]', 'one[tool]a[assistant] two [tool]b[assistant]three'],
  ];
  const others = [
    ['aside[assistant]', 'one'],
    ['task[assistant]one[tool]a[assistant]', ' two [tool]b[assistant]three'],
    ['task[assistant]', 'one[tool]a[assistant] two '],
  ];
  // Either of the two that asked the same may be the one whose answer went on.
  const sorted = (one: string[][]) => JSON.stringify(one.toSorted());
  assert.ok([ways, others].map(sorted).includes(sorted(lines)), sorted(lines));
});

test('streamed answers are OpenAI’s events, and what cannot be done is refused by name', async (t) => {
  const s = await stages(t, {
    policy: letterPolicy({ replies }),
    program: `
body = json.dumps({'messages': [user('task')], 'stream': True, 'stream_options': {'include_usage': True}}).encode()
base = os.environ['OPENAI_BASE_URL']
request = urllib.request.Request(base + '/chat/completions', body, {'content-type': 'application/json'})
for line in urllib.request.urlopen(request).read().decode().split('\\n\\n'):
    if line == 'data: [DONE]': print('done')
    elif line:
        event = json.loads(line[6:])
        choice = (event['choices'] or [{}])[0]
        print(event['object'], choice.get('delta'), choice.get('finish_reason'), event.get('usage'))
print(json.load(urllib.request.urlopen(base + '/models'))['data'][0]['id'])
for more in [{'n': 2}, {'stop': ['x']}, {'response_format': {'type': 'json_object'}}, {'tool_choice': 'required'},
             {'messages': []}, {'messages': [{'role': 'user', 'content': [{'type': 'image_url'}]}]}]:
    status, body = ask(**{'messages': [user('task')], **more})
    print(status, body['error']['type'], body['error']['param'])
for body in ['[' * 1000000, '{"messages":' + '[' * 100000 + ']' * 100000 + '}', '{"messages": 7}']:
    request = urllib.request.Request(base + '/chat/completions', body.encode())
    try: urllib.request.urlopen(request)
    except urllib.error.HTTPError as error: print(error.code, json.load(error)['error']['code'])
`,
  });
  await s.run(await s.init());
  const { answer } = (await s.outcome()) as { answer: string };
  assert.deepEqual(answer.trimEnd().split('\n'), [
    "chat.completion.chunk {'role': 'assistant', 'content': 'one'} None None",
    'chat.completion.chunk {} stop None',
    "chat.completion.chunk None None {'prompt_tokens': 15, 'completion_tokens': 4, 'total_tokens': 19}",
    'done',
    'letters',
    '400 invalid_request_error n',
    '400 invalid_request_error stop',
    '400 invalid_request_error response_format.type',
    '400 invalid_request_error tool_choice',
    '400 invalid_request_error messages',
    '400 invalid_request_error messages.0.content',
    '400 invalid_json',
    '400 invalid_value',
    '400 invalid_value',
  ]);
});

test('calls of tools go to the program as OpenAI writes them, and come back as the tokens they were', async (t) => {
  const call = '<tool_call>\n{"name": "run", "arguments": {"command": "ls"}}\n</tool_call>';
  const spoken = [
    `I look.\n${call}`,
    `<tool_call>\n{"name": "gone", "arguments": {}}\n</tool_call><tool_call>no`,
    'done',
  ];
  let tools: unknown;
  const policy = letterPolicy({ replies: spoken });
  const s = await stages(t, {
    policy: {
      ...policy,
      renderPrompt: (messages, told) => {
        tools = told;
        return policy.renderPrompt(messages);
      },
    },
    program: `
tools = [{'type': 'function', 'function': {'name': 'run', 'description': 'Runs.', 'parameters': {
    'type': 'object', 'properties': {'command': {'type': 'string', 'pattern': '(a+)+$'}}}}}]
first = ask([user('task')], tools=tools)
print(said(first), first[1]['choices'][0]['finish_reason'])
# As clients do that write the arguments anew and leave fields out.
again = {'role': 'assistant', 'content': 'I look.', 'tool_calls': [
    {'id': 'other', 'type': 'function', 'function': {'name': 'run', 'arguments': '{"command":"ls"}'}}]}
second = ask([user('task'), again, tool('file')], tools=tools)
print(said(second))
third = ask([user('task'), again, tool('file'), said(second), tool('no')], tools=tools)
`,
  });
  await s.run(await s.init());
  const { answer } = (await s.outcome()) as { answer: string };
  assert.deepEqual(answer.split('\n').slice(0, 2), [
    "{'role': 'assistant', 'content': 'I look.', 'tool_calls': [{'id': 'call_0_0_0', 'type': 'function', " +
      "'function': {'name': 'run', 'arguments': '{\"command\":\"ls\"}'}}]} tool_calls",
    "{'role': 'assistant', 'content': '<tool_call>no', 'tool_calls': [{'id': 'call_0_1_0', 'type': 'function', " +
      "'function': {'name': 'gone', 'arguments': '{}'}}]}",
  ]);
  assert.equal((tools as { name: string }[])[0]?.name, 'run');
  const [trajectory, ...more] = await s.trajectories();
  assert.deepEqual(more, []);
  assert.ok(trajectory);
  assert.equal(sampledIn(trajectory), spoken.join(''));
  assert.deepEqual(trajectory.metadata.tool_calls, {
    ok: 1,
    unclosed: 1,
    invalidJson: 0,
    unknownTool: 1,
    wrongArguments: 0,
  });
});

test('limits are told to the program in words that clients know, and the rollout ends truncated', async (t) => {
  const program = `
messages = [user('task')]
while True:
    answer = ask(messages)
    if answer[0] != 200:
        print(answer[0], answer[1]['error']['code'])
        break
    messages += [said(answer), tool('x' * 20)]
`;
  const forever = Array.from({ length: 9 }, (_, turn) => `turn ${turn}`);
  for (const [limits, contextTokens, end, told] of [
    [{ maxTurns: 2 }, 1000, 'turns', '403 turns'],
    [{ maxTotalTokens: 90 }, 1000, 'tokens', '400 context_length_exceeded'],
    [{}, 90, 'context', '400 context_length_exceeded'],
  ] as const) {
    const s = await stages(t, { policy: letterPolicy({ replies: forever, contextTokens }), program, limits });
    assert.equal((await s.run(await s.init())).ended, end);
    assert.deepEqual(await s.outcome(), { answer: `${told}\n` });
    const [trajectory] = await s.trajectories();
    assert.equal(trajectory?.truncated, end);
    assert.equal(sampledIn(trajectory as Trajectory), forever.slice(0, 2).join(''));
  }
});

test('a turn has no more tokens than the program or the rollout allows', async (t) => {
  const s = await stages(t, {
    policy: letterPolicy({ replies: ['a long story'] }),
    sampling: { maxTokensPerTurn: 8 },
    program: `
for more in [{'max_tokens': 3}, {'max_completion_tokens': 100}]:
    choice = ask([user('task')], **more)[1]['choices'][0]
    print(choice['message']['content'], choice['finish_reason'])
`,
  });
  await s.run(await s.init());
  assert.deepEqual(await s.outcome(), { answer: 'a l length\na long s length\n' });
});

test('a worker that dies in the middle of a call leaves it to the next; the program notices nothing', async (t) => {
  let reached = () => {};
  const stuck = new Promise<void>((resolve) => {
    reached = resolve;
  });
  let asked = 0;
  const dying = letterPolicy({
    replies,
    onGenerate: async (_request, signal) => {
      if (++asked < 2) return;
      reached();
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    },
  });
  const s = await stages(t, {
    policy: letterPolicy({ replies }),
    program: `open('/workspace/starts', 'a').write('x')\n${CONVERSATION}print(open('/workspace/starts').read())`,
  });
  const placement = await s.init();
  const first = s.runWith(dying, placement, 1);
  first.catch(() => {});
  await stuck;
  const report = await s.run(placement, 2);
  assert.equal(report.ended, 'finished');
  await assert.rejects(
    first,
    (error) => error instanceof ApplicationFailure && error.type === 'FenceRefused',
  );
  assert.deepEqual(await s.outcome(), { answer: 'three 6\nx\n' }, 'started once');
  const [trajectory, ...more] = await s.trajectories();
  assert.equal(decode(trajectory?.output_ids ?? []), WHOLE);
  assert.deepEqual(more, []);
});

test('a worker that dies between the record and the answer has the next answer from the ledger', async (t) => {
  const s = await stages(t, { policy: letterPolicy({ replies }), program: CONVERSATION });
  const placement = await s.init();
  const answerAtEndpoint = s.sandboxes.answerAtEndpoint.bind(s.sandboxes);
  let answers = 0;
  s.sandboxes.answerAtEndpoint = (...given) => {
    if (++answers === 2) throw new Error('died');
    return answerAtEndpoint(...given);
  };
  await assert.rejects(s.run(placement, 1), /died/);
  assert.equal((await s.run(placement, 2)).ended, 'finished');
  assert.equal(sampled(await s.records()).length, 3, 'no turn is sampled twice');
  assert.equal(decode((await s.trajectories())[0]?.output_ids ?? []), WHOLE);
});

test('a pause keeps a turn’s tokens and the call; the next entry finishes both', async (t) => {
  let pause: (() => Promise<unknown>) | undefined;
  const policy = letterPolicy({
    replies,
    onGenerate: async (_request, signal) => {
      if (!pause) return;
      await pause();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
    },
  });
  const s = await stages(t, { policy, program: CONVERSATION });
  const placement = await s.init();
  pause = () => s.pause(placement, 1);
  const paused = await s.run(placement, 1);
  assert.deepEqual([paused.ended, paused.turns, paused.tokens], ['paused', 0, 3]);
  pause = undefined;
  assert.equal((await s.run(placement, 2)).ended, 'finished');
  const [trajectory, ...more] = await s.trajectories();
  assert.deepEqual(more, []);
  assert.equal(decode(trajectory?.output_ids ?? []), WHOLE);
  assert.deepEqual(
    trajectory?.turns.map(({ turn, finish }) => [turn, finish]),
    [
      [0, 'abort'],
      [0, 'stop'],
      [1, 'stop'],
      [2, 'stop'],
    ],
  );
});

test('a program that gives a call up and asks again gets the tokens that it has already cost', async (t) => {
  let calls = 0;
  const s = await stages(t, {
    policy: letterPolicy({
      replies,
      onGenerate: async (_request, signal) => {
        if (++calls === 1) await new Promise((resolve) => signal.addEventListener('abort', resolve));
      },
    }),
    program: `
body = json.dumps({'messages': [user('task')]}).encode()
request = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body, {'content-type': 'application/json'})
try: urllib.request.urlopen(request, timeout=0.5)
except OSError as error: print(error)
print(said(ask([user('task')]))['content'])
`,
  });
  assert.equal((await s.run(await s.init())).ended, 'finished');
  assert.deepEqual(await s.outcome(), { answer: 'timed out\none\n' });
  const records = sampled(await s.records());
  assert.deepEqual(
    records.map(({ ids, finish }) => [decode(ids), finish]),
    [
      ['one', 'abort'],
      ['', 'stop'],
    ],
  );
});

test('cancelling keeps what was sampled, and nothing of the program is left', async (t) => {
  let abort = async () => {};
  const s = await stages(t, {
    policy: letterPolicy({
      replies,
      onGenerate: async (_request, signal) => {
        await abort();
        await until(() => signal.aborted, 'the abort');
      },
    }),
    program: CONVERSATION,
  });
  const placement = await s.init();
  abort = () => s.abort(placement);
  const report = await s.run(placement);
  assert.deepEqual([report.ended, report.tokens, report.cancel?.llmAborted], ['aborted', 3, true]);
  assert.equal((await s.sandboxes.stats()).sandboxes, 0);
  assert.equal((await s.trajectories())[0]?.finish_reason, 'aborted');
});

test('a program that never asks the model has failed, whatever it prints', async (t) => {
  const s = await stages(t, { policy: letterPolicy({ replies }), program: 'print(42)' });
  await assert.rejects(s.run(await s.init()), /has asked the model nothing/);
});

test('a deadline ends the program before its outcome is taken, and keeps what was sampled', async (t) => {
  let [calls, end] = [0, async () => {}];
  const s = await stages(t, {
    policy: letterPolicy({
      replies,
      onGenerate: async (_request, signal) => {
        if (++calls < 2) return;
        await end();
        await until(() => signal.aborted, 'the deadline');
      },
    }),
    program: `
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(['sleep', '1000'], start_new_session=True)
${CONVERSATION}`,
  });
  const placement = await s.init();
  end = () => s.abort(placement, 'runDeadline');
  const kill = s.sandboxes.kill.bind(s.sandboxes);
  let killed = 0;
  s.sandboxes.kill = async (...given) => {
    const receipt = await kill(...given);
    killed = receipt.processesKilled;
    return receipt;
  };
  const report = await s.run(placement);
  assert.equal(report.ended, 'deadline');
  assert.ok(killed >= 2, 'the forwarder, and what the program had started');
  const [trajectory] = await s.trajectories();
  assert.equal(trajectory?.truncated, 'deadline');
  assert.equal(sampledIn(trajectory as Trajectory), 'one tw');
});
