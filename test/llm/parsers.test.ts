import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { fenced } from '../../activities/agent/parsers/fenced.ts';
import { hermes } from '../../activities/agent/parsers/hermes.ts';
import { ToolCall, type ToolSpec } from '../../contracts/tools.ts';

const BASH: ToolSpec = {
  name: 'bash',
  description: 'Runs a command.',
  parameters: {
    type: 'object',
    properties: { command: { type: 'string' }, timeout: { type: 'integer', minimum: 1 } },
    required: ['command'],
    additionalProperties: false,
  },
  fence: { language: 'bash', argument: 'command' },
};
const FINISH: ToolSpec = { name: 'finish', description: 'Ends.', parameters: { type: 'object' } };
const fencedCalls = (text: string) => fenced.parse(text, [BASH, FINISH], 3).calls;
const hermesCalls = (text: string) => hermes.parse(text, [BASH, FINISH], 3).calls;
const statuses = (calls: ToolCall[]) => calls.map(({ status }) => status);

test('a closed block in the language of a tool is a call', () => {
  assert.deepEqual(fencedCalls('I count.\n```bash\nexpr 1 + 2\nls\n```\nThen I see.'), [
    { callId: '3.0', tool: 'bash', arguments: { command: 'expr 1 + 2\nls' }, status: 'ok' },
  ]);
});

test('blocks in other languages, and what they quote, are text', () => {
  assert.deepEqual(fencedCalls('```python\nprint(1)\n```'), []);
  assert.deepEqual(fencedCalls('````text\n```bash\nls\n```\n````'), []);
  assert.deepEqual(fencedCalls('no block: ```bash ls```'), []);
});

test('every closed block is a call, in order; one that is left open is not run', () => {
  const calls = fencedCalls('```bash\na\n```\n```bash\nb\n```\n```bash\nc');
  assert.deepEqual(
    calls.map(({ callId, arguments: { command }, status }) => [callId, command, status]),
    [
      ['3.0', 'a', 'ok'],
      ['3.1', 'b', 'ok'],
      ['3.2', 'c', 'unclosed'],
    ],
  );
  assert.match(calls[2]?.problem ?? '', /not closed/);
});

test('an empty block is no command', () => {
  assert.deepEqual(statuses(fencedCalls('```bash\n\n```')), ['wrongArguments']);
});

test('any command in a fence longer than its own backticks is read back as it was', () => {
  const command = fc
    .string({ unit: 'grapheme', minLength: 1 })
    .filter((text) => text.trim() !== '' && !/\r|`{4}/.test(text));
  fc.assert(
    fc.property(command, (text) => {
      assert.deepEqual(fencedCalls(`so:\n\`\`\`\`bash\n${text}\n\`\`\`\``)[0]?.arguments, { command: text });
    }),
  );
});

test('any arguments in a hermes call are read back as they were', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.integer({ min: 1 }), (command, timeout) => {
      fc.pre(!command.includes('tool_call>'));
      const call = JSON.stringify({ name: 'bash', arguments: { command, timeout } });
      assert.deepEqual(hermesCalls(`so <tool_call>\n${call}\n</tool_call>`), [
        { callId: '3.0', tool: 'bash', arguments: { command, timeout }, status: 'ok' },
      ]);
    }),
  );
});

test('what is wrong with a hermes call is said in words that help', () => {
  const cases: [string, ToolCall['status'], RegExp][] = [
    ['<tool_call>{"name":"bash","arguments":{"command":"ls"}}', 'unclosed', /end it with <\/tool_call>/],
    ['<tool_call>{"name":"bash",}</tool_call>', 'invalidJson', /not valid JSON/],
    ['<tool_call>[1]</tool_call>', 'invalidJson', /"name"/],
    ['<tool_call>{"name":"shell","arguments":{}}</tool_call>', 'unknownTool', /there are: bash, finish/],
    ['<tool_call>{"name":"bash","arguments":{}}</tool_call>', 'wrongArguments', /command/],
    ['<tool_call>{"name":"bash","arguments":{"command":1}}</tool_call>', 'wrongArguments', /expected string/],
    ['<tool_call>{"name":"bash","arguments":{"command":"a","cwd":"/"}}</tool_call>', 'wrongArguments', /cwd/],
  ];
  for (const [text, status, problem] of cases) {
    const [call] = hermesCalls(text);
    assert.equal(call?.status, status, text);
    assert.match(call?.problem ?? '', problem);
  }
});

test('several hermes calls in one turn are numbered', () => {
  const call = '<tool_call>{"name":"finish"}</tool_call>';
  assert.deepEqual(
    hermesCalls(`${call} and ${call}`).map(({ callId, status }) => `${callId} ${status}`),
    ['3.0 ok', '3.1 ok'],
  );
});

test('no text makes a parser throw or give a call that breaks the contract', () => {
  const parts = ['```', '````', 'bash', '\n', '<tool_call>', '</tool_call>', '{"name":"bash"', '}', '"', ' '];
  const text = fc
    .array(fc.oneof(fc.constantFrom(...parts), fc.string({ unit: 'binary' })))
    .map((p) => p.join(''));
  fc.assert(
    fc.property(text, fc.nat(), (sampled, turn) => {
      for (const parser of [fenced, hermes]) {
        const { calls } = parser.parse(sampled, [BASH, FINISH], turn);
        for (const [index, call] of calls.entries()) {
          assert.deepEqual(ToolCall.parse(call), call);
          assert.equal(call.callId, `${turn}.${index}`);
          assert.equal(call.status === 'ok', call.problem === undefined);
        }
      }
    }),
    { numRuns: 500 },
  );
});

test('a block of a tool with many arguments is a JSON object of them', () => {
  const parameters = {
    type: 'object',
    properties: { path: { type: 'string' }, line: { type: 'integer' } },
    required: ['path'],
  };
  const edit: ToolSpec = { name: 'edit', description: '', parameters, fence: { language: 'edit' } };
  const read = (block: string) =>
    fenced.parse(`\`\`\`edit\n${block}\n\`\`\``, [edit], 0).calls[0] as ToolCall;
  const values = { path: 'a "b"\n', line: 3 };
  assert.deepEqual(read(JSON.stringify(values, null, 2)).arguments, values);
  assert.deepEqual(
    ['{"path": "a"}', '{"line": 1}', '{"path": "a", "line": "1"}', '["a"]', 'path: a', ' '].map(
      (block) => read(block).status,
    ),
    ['ok', 'wrongArguments', 'wrongArguments', 'invalidJson', 'invalidJson', 'wrongArguments'],
  );
});
