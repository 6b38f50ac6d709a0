import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { fenced } from '../../activities/agent/parsers/fenced.ts';
import { PARSERS } from '../../activities/agent/parsers/formats.ts';
import { hermes } from '../../activities/agent/parsers/hermes.ts';
import { llama3Json } from '../../activities/agent/parsers/llama3-json.ts';
import { qwen3Coder } from '../../activities/agent/parsers/qwen3-coder.ts';
import { afterThoughts } from '../../activities/agent/parsers/thoughts.ts';
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
const SEARCH: ToolSpec = {
  name: 'search',
  description: 'Looks for words.',
  parameters: {
    type: 'object',
    properties: {
      words: { type: 'array', items: { type: 'string' } },
      where: { type: 'object' },
      most: { type: ['integer', 'null'] },
      exact: { type: 'boolean' },
    },
    required: ['words'],
  },
};
const fencedCalls = (text: string) => fenced.parse(text, [BASH, FINISH], 3).calls;
const hermesCalls = (text: string) => hermes.parse(text, [BASH, FINISH], 3).calls;
const llamaCalls = (text: string) => llama3Json.parse(text, [BASH, FINISH], 3).calls;
const coderCalls = (text: string) => qwen3Coder.parse(text, [BASH, FINISH, SEARCH], 3).calls;
const coderCall = (name: string, values: Record<string, string>) => {
  const parameters = Object.entries(values).map(
    ([key, value]) => `<parameter=${key}>\n${value}\n</parameter>\n`,
  );
  return `<tool_call>\n<function=${name}>\n${parameters.join('')}</function>\n</tool_call>`;
};
/** Text that now and then holds tags of the formats, as code about them does. */
const withTags = fc
  .array(
    fc.oneof(fc.string({ unit: 'grapheme' }), fc.constantFrom('<tool_call>', '</tool_call>', '{"', '"}')),
  )
  .map((parts) => parts.join(''));
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
    .filter((text) => text.trim() !== '' && !/`{4}/.test(text));
  fc.assert(
    fc.property(command, (text) => {
      assert.deepEqual(fencedCalls(`so:\n\`\`\`\`bash\n${text}\n\`\`\`\``)[0]?.arguments, { command: text });
    }),
  );
});

test('a block that stands in a list, or ends its lines otherwise, is read as it is meant', () => {
  const command = (text: string) => fencedCalls(text)[0]?.arguments.command;
  assert.equal(command('1. so\n   ```bash\n   if a; then\n     b\n fi\n   ```'), 'if a; then\n  b\nfi');
  assert.equal(command('```bash\r\na\r\nb\r\n```\r\n'), 'a\nb');
  assert.equal(command('```bash\na\r\nb\n```'), 'a\r\nb');
});

test('any arguments in a hermes call are read back as they were', () => {
  fc.assert(
    fc.property(withTags, fc.integer({ min: 1 }), (command, timeout) => {
      const call = JSON.stringify({ name: 'bash', arguments: { command, timeout } });
      assert.deepEqual(hermesCalls(`so <tool_call>\n${call}\n</tool_call>`), [
        { callId: '3.0', tool: 'bash', arguments: { command, timeout }, status: 'ok' },
      ]);
    }),
  );
});

test('tags in the code of a call do not end it; a call that is broken does not swallow the next', () => {
  const command = "sed 's#</parameter>#</tool_call>#'; echo '<tool_call>' '</function>'";
  for (const parser of [hermes, qwen3Coder, llama3Json]) {
    const written = parser.write?.('bash', JSON.stringify({ command })) as string;
    const { calls } = parser.parse(written, [BASH], 0);
    assert.deepEqual(
      calls.map((call) => [call.status, call.arguments]),
      [['ok', { command }]],
      parser.name,
    );
  }
  const good = '<tool_call>{"name":"finish"}</tool_call>';
  for (const [broken, status] of [
    ['<tool_call>{"name":"finish"', 'unclosed'],
    ['<tool_call>{"name":"fin</tool_call>', 'invalidJson'],
    ['<tool_call>{"name":"finish"}}</tool_call>', 'invalidJson'],
  ] as const) {
    assert.deepEqual(statuses(hermesCalls(`${broken}\n${good}`)), [status, 'ok'], broken);
  }
  // A value that was not closed ends before the next call: its words are no part of a command.
  const open = coderCall('bash', { command: 'a' }).replace('</parameter>\n', '');
  const calls = coderCalls(`${open}\n${coderCall('bash', { command: 'b' })}`);
  assert.deepEqual(
    calls.map(({ status, arguments: { command } }) => [status, command]),
    [
      ['unclosed', undefined],
      ['ok', 'b'],
    ],
  );
  const unended = coderCall('bash', { command: 'a' }).replace('</function>', '');
  assert.deepEqual(statuses(coderCalls(`${unended}\n${coderCall('bash', { command: 'b' })}`)), [
    'invalidJson',
    'ok',
  ]);
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

test('any arguments in a Qwen3-Coder call are read back as they were, by their types', () => {
  const text = fc.string({ unit: 'grapheme' }).filter((words) => !words.includes('</parameter>'));
  fc.assert(
    fc.property(text, fc.integer({ min: 1 }), (command, timeout) => {
      const written = coderCall('bash', { command, timeout: String(timeout) });
      assert.deepEqual(coderCalls(`so\n${written}`), [
        { callId: '3.0', tool: 'bash', arguments: { command, timeout }, status: 'ok' },
      ]);
    }),
  );
  fc.assert(
    fc.property(
      fc.record({
        words: fc.array(text),
        where: fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })),
        most: fc.option(fc.integer()),
        exact: fc.boolean(),
      }),
      (values) => {
        const plain = JSON.parse(JSON.stringify(values));
        fc.pre(!JSON.stringify(values).includes('</parameter>'));
        const written = Object.entries(values).map(([key, value]) => [key, JSON.stringify(value)]);
        const [call] = coderCalls(coderCall('search', Object.fromEntries(written)));
        assert.deepEqual(call, { callId: '3.0', tool: 'search', arguments: plain, status: 'ok' });
      },
    ),
  );
});

test('what is wrong with a Qwen3-Coder call is said in words that help', () => {
  const cases: [string, ToolCall['status'], RegExp][] = [
    ['<tool_call>\n<function=bash>\n<parameter=command>\nls', 'unclosed', /<\/parameter>/],
    ['<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>', 'unclosed', /<\/tool_call>/],
    ['<tool_call>\n{"name": "bash"}\n</tool_call>', 'invalidJson', /<function=NAME>/],
    [coderCall('shell', { command: 'ls' }), 'unknownTool', /there are: bash, finish, search/],
    [coderCall('bash', {}), 'wrongArguments', /command/],
    [coderCall('bash', { command: 'ls', timeout: 'soon' }), 'wrongArguments', /timeout/],
  ];
  for (const [text, status, problem] of cases) {
    const [call] = coderCalls(text);
    assert.equal(call?.status, status, text);
    assert.match(call?.problem ?? '', problem);
  }
  const several = `${coderCall('finish', {})}\n<tool_call>x</tool_call>\n${coderCall('bash', { command: 'a' })}`;
  assert.deepEqual(statuses(coderCalls(several)), ['ok', 'invalidJson', 'ok']);
});

test('any parameters in a Llama call are read back as they were', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.integer({ min: 1 }), fc.boolean(), (...values) => {
      const [command, timeout, tagged] = values;
      const call = JSON.stringify({ name: 'bash', parameters: { command, timeout } });
      const ok = { tool: 'bash', arguments: { command, timeout }, status: 'ok' };
      assert.deepEqual(llamaCalls(`${tagged ? '<|python_tag|>' : ''}${call}; ${call}`), [
        { callId: '3.0', ...ok },
        { callId: '3.1', ...ok },
      ]);
    }),
  );
});

test('a Llama turn that is an answer is no call, one that tries to call says what is wrong', () => {
  for (const answer of [
    'Four.',
    '{"answer": 4}',
    'I would call {"name": "bash", "parameters": {}}',
    '',
    '{',
  ]) {
    assert.deepEqual(llamaCalls(answer), [], answer);
  }
  const cases: [string, ToolCall['status'], RegExp][] = [
    ['{"name": "bash", "parameters": {"command": "ls"}', 'unclosed', /end its JSON object/],
    ['{"name": "bash", "parameters": {"command": "ls}', 'unclosed', /end its JSON object/],
    ['{"name": "bash", "parameters": {command: 1}}', 'invalidJson', /not valid JSON/],
    [
      '{"type": "function", "name": "bash", "parameters": {"command": "echo "x""}}',
      'invalidJson',
      /not valid/,
    ],
    [
      '{"type": "function", "name": "bash", "parameters": {"command": "ls"',
      'unclosed',
      /end its JSON object/,
    ],
    ['{"name": 1}', 'invalidJson', /"name" \(a string\)/],
    ['<|python_tag|>ls', 'invalidJson', /JSON object/],
    ['{"name": "shell", "parameters": {}}', 'unknownTool', /there are: bash, finish/],
    ['{"name": "bash", "parameters": {}}', 'wrongArguments', /command/],
  ];
  for (const [text, status, problem] of cases) {
    const [call] = llamaCalls(text);
    assert.equal(call?.status, status, text);
    assert.match(call?.problem ?? '', problem);
  }
});

test('calls that a model only thinks of are none', () => {
  const call = '<tool_call>{"name":"finish"}</tool_call>';
  const calls = (text: string, opened = false) => hermesCalls(afterThoughts(text, opened)).length;
  assert.equal(calls(`<think>\nPerhaps ${call}?\n</think>\n\n${call}`), 1);
  assert.equal(calls(`<think>\nPerhaps ${call}`), 0, 'cut while thinking');
  assert.equal(calls(`Perhaps ${call}?</think>${call}`, true), 1, 'the prompt began the thoughts');
  assert.equal(calls(`Perhaps ${call}`, true), 0);
  assert.equal(calls(`${call} says </think>`), 1);
});

test('arguments that are nested without end are refused', () => {
  const deep = `${'['.repeat(10_000)}${']'.repeat(10_000)}`;
  const json = `{"name":"finish","arguments":{"x":${deep}},"parameters":{"x":${deep}}}`;
  assert.deepEqual(statuses(hermesCalls(`<tool_call>${json}</tool_call>`)), ['invalidJson']);
  assert.deepEqual(statuses(llamaCalls(json)), ['invalidJson']);
  assert.deepEqual(statuses(coderCalls(coderCall('search', { words: deep }))), ['wrongArguments']);
});

test('no text makes a parser throw or give a call that breaks the contract', () => {
  const parts = ['```', '````', 'bash', '\n', '<tool_call>', '</tool_call>', '{"name":"bash"', '}', '"', ' '];
  const more = [
    '<function=bash>',
    '<parameter=command>',
    '</parameter>',
    '</function>',
    '<|python_tag|>',
    ';',
  ];
  const text = fc
    .array(fc.oneof(fc.constantFrom(...parts, ...more), fc.string({ unit: 'binary' })))
    .map((p) => p.join(''));
  fc.assert(
    fc.property(text, fc.nat(), fc.constantFrom(...Object.values(PARSERS)), (sampled, turn, parser) => {
      const { calls } = parser.parse(afterThoughts(sampled, false), [BASH, FINISH, SEARCH], turn);
      for (const [index, call] of calls.entries()) {
        assert.deepEqual(ToolCall.parse(call), call);
        assert.equal(call.callId, `${turn}.${index}`);
        assert.equal(call.status === 'ok', call.problem === undefined);
      }
    }),
    { numRuns: 2000 },
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

test('what a turn says beside its calls is told apart from them, and calls as text are read back', () => {
  const call = { name: 'bash', values: '{"command":"ls \\"x\\""}' };
  for (const parser of [hermes, qwen3Coder, llama3Json]) {
    const written = parser.write?.(call.name, call.values) as string;
    const { calls, said } = parser.parse(written, [BASH], 0);
    assert.deepEqual(
      calls.map(({ tool, arguments: values, status }) => [tool, JSON.stringify(values), status]),
      [['bash', call.values, 'ok']],
    );
    assert.equal(said.trim(), '', parser.name);
  }
  assert.equal(fenced.write, undefined);
  const saidBy = (parser: typeof hermes, text: string) => parser.parse(text, [BASH], 0).said;
  const good = (parser: typeof hermes) => parser.write?.('bash', '{"command":"ls"}') as string;
  // Of a call that cannot be read, the words are all that there is.
  for (const parser of [hermes, qwen3Coder]) {
    const cut = good(parser).slice(0, -15);
    assert.equal(saidBy(parser, `a ${good(parser)} b ${good(parser)} ${cut}`), `a  b  ${cut}`);
    assert.equal(saidBy(parser, `${good(parser)}<tool_call>no</tool_call>c`), '<tool_call>no</tool_call>c');
  }
  assert.equal(saidBy(llama3Json, `${good(llama3Json)}; {"name": 7}`), '{"name": 7}');
  assert.equal(saidBy(llama3Json, '{"an": "answer"}'), '{"an": "answer"}');
  const block = 'See:\n```bash\nls\n```';
  assert.equal(saidBy(fenced, block), block);
});
