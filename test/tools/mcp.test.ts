import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { checkedCall } from '../../activities/agent/parsers/call.ts';
import { bash } from '../../activities/tools/bash.ts';
import { mcp } from '../../activities/tools/mcp.ts';
import { openTools, type Tool } from '../../activities/tools/tool.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { SandboxLimits } from '../../contracts/sandbox.ts';
import { failure } from '../sandbox/support.ts';
import { Bench } from './support.ts';

/** The server, and the packages that it imports, as they lie beside each other here. */
const binds = [
  { source: path.join(PROJECT_ROOT, 'node_modules'), target: '/opt/mcp/node_modules' },
  { source: path.join(PROJECT_ROOT, 'test/tools/mcp-server.mjs'), target: '/opt/mcp/server.mjs' },
  { source: process.execPath, target: '/opt/mcp/node' },
];
/** Node reserves more addresses than it uses. */
const limits = SandboxLimits.parse({ memoryBytes: 64 * 1024 ** 3 });
const server = mcp({ name: 'test', command: ['/opt/mcp/node', '/opt/mcp/server.mjs'] });

test('the tools of an MCP server in the sandbox', async (t) => {
  const bench = await Bench.start(t, { binds, limits });
  let tools: Tool[] = await openTools([bash, server], bench.sandbox);
  const named = (name: string) => tools.find(({ spec }) => spec.name === name) as Tool;
  const call = (name: string, args = {}, timeoutMs?: number, callId?: string) =>
    bench.call(named(`test_${name}`), args, timeoutMs, callId);

  await t.test('are known by name, description and schema', () => {
    assert.deepEqual(
      tools.map(({ spec }) => spec.name),
      [
        'bash',
        ...['add', 'count', 'echo', 'fail', 'draw', 'ask', 'hang', 'die'].map((name) => `test_${name}`),
      ],
    );
    const { spec } = named('test_add');
    assert.equal(spec.description, 'Adds.');
    assert.deepEqual(spec.parameters.required, ['a', 'b']);
    assert.deepEqual(spec.fence, { language: 'test_add' });
  });

  await t.test('answer with text, images as files, and errors', async () => {
    assert.deepEqual(await call('add', { a: 2, b: 3 }), { status: 'ok', exitCode: 0, text: '5' });
    const odd = '"é€😀" \\ \u0007\u001b[1m \n\t\u2028 `$(x)` rollout-answer ';
    assert.equal((await call('echo', { text: odd })).text, odd);
    const long = 'x'.repeat(300_000);
    assert.match((await call('echo', { text: long })).text, /^x{8000}\n\[\.\.\. 284000 characters left out/);
    const failed = await call('fail');
    assert.deepEqual([failed.exitCode, /as asked/.test(failed.text)], [1, true]);
    const wrong = await call('add', { a: 'two' });
    assert.equal(wrong.exitCode, 1);
    assert.match(wrong.text, /number/);
    assert.equal((await call('ask')).text, 'asked');
    const { text } = await call('draw', {}, 30_000, 'draw.0');
    assert.equal(text, 'a dot:\n[image/png saved as images/mcp-draw.0-2.png]');
    assert.equal(await bench.sh('head -c 4 images/mcp-draw.0-2.png | tail -c 3'), 'PNG');
  });

  await t.test('run once by call id, also for a worker that takes over', async () => {
    assert.equal((await call('count', {}, 30_000, 'count.0')).text, '1');
    tools = await openTools([server], bench.sandbox);
    assert.equal((await call('count', {}, 30_000, 'count.0')).text, '1');
    assert.equal((await call('count')).text, '2', 'the server is still the same');
  });

  await t.test('that hang are given up, and the server goes on', async () => {
    const hung = await call('hang', {}, 500);
    assert.deepEqual(hung, { status: 'timeout', exitCode: null, text: '[no answer within 0.5 s]' });
    assert.equal((await call('count')).text, '3');
  });

  await t.test('come back after the server has died', async () => {
    const died = await call('die');
    assert.equal(died.status, 'restarted');
    assert.match(died.text, /the server test ended/);
    assert.deepEqual(await call('count'), { status: 'restarted', exitCode: 0, text: '1' });
    assert.deepEqual(await call('count'), { status: 'ok', exitCode: 0, text: '2' });
    await bench.sh('pkill -KILL -f /opt/mcp/server.mjs');
    assert.equal((await call('count')).status, 'restarted');
    assert.equal((await call('count')).text, '1');
  });
});

test('a server that does not start is named, with its own words', async (t) => {
  const bench = await Bench.start(t);
  const open = (...command: [string, ...string[]]) =>
    openTools([mcp({ name: 'odd', command })], bench.sandbox);
  await assert.rejects(
    open('/bin/bash', '-c', 'echo "no such flag" >&2; exit 2'),
    failure('HandlerFailed', /MCP server odd did not start: no such flag/),
  );
  const other = await Bench.start(t);
  await assert.rejects(
    openTools([mcp({ name: 'odd', command: ['/nowhere/server'] })], other.sandbox),
    failure('HandlerFailed', /\/nowhere\/server/),
  );
  assert.throws(() => mcp({ name: 'a b', command: ['x'] }), failure('HandlerFailed', /letters, digits/));
});

/** Says what its argument tells, which no client should fall for. */
const HOSTILE = `
import json, sys
how = sys.argv[1]
def say(text): print(text, flush=True)
def answer(id, **result): say(json.dumps({'jsonrpc': '2.0', 'id': id, 'result': result}))
def tool(name, **more): return {'name': name, 'inputSchema': {'type': 'object'}, **more}
backtracking = {'type': 'object', 'properties': {'x': {'type': 'string', 'pattern': '^(a+)+$'}}}
tools = {
    'names': [tool('x\\n\\x60\\x60\\x60bash')],
    'huge': [tool('x', description='d' * 300_000)],
    'twice': [tool('x'), tool('x')],
    'pattern': [tool('x', outputSchema=backtracking, inputSchema=backtracking)],
}
if how == 'chatter': say('ready'); say('"id" is no JSON'); say('{"jsonrpc": "2.0", "id": ')
for line in sys.stdin:
    asked = json.loads(line)
    id, method = asked.get('id'), asked.get('method')
    if method == 'initialize':
        answer(id, protocolVersion=asked['params']['protocolVersion'], capabilities={'tools': {}},
               serverInfo={'name': how, 'version': '1'})
    elif method == 'tools/list':
        answer(id, tools=tools.get(how, [tool('x')]))
    elif method == 'tools/call':
        while how == 'notes': say('{"jsonrpc":"2.0","method":"notifications/message","params":{}}')
        for n in range(1000 if how == 'pings' else 0): say('{"jsonrpc":"2.0","method":"ping","id":%d}' % n)
        if how == 'chatter': say('[]'); say('{"id":[]}'); answer('another', content=[]); answer(None, content=[])
        for times in range(2):
            answer(id, content=[{'type': 'text', 'text': str(asked['params']['arguments'])}],
                   structuredContent={'x': 'a' * 50 + '!'})
`;

test('a hostile server does no harm', async (t) => {
  const bench = await Bench.start(t);
  const open = (how: string) =>
    openTools([bash, mcp({ name: how, command: ['python3', '-c', HOSTILE, how] })], bench.sandbox);
  const call = async (how: string, timeoutMs?: number) => {
    const tool = (await open(how))[1] as Tool;
    return [await bench.call(tool, { n: 1 }, timeoutMs), await bench.call(tool, { n: 2 }, timeoutMs)];
  };
  const ok = (n: number) => ({ status: 'ok', exitCode: 0, text: `{'n': ${n}}` });

  await t.test('that says other things, or things twice', async () => {
    assert.deepEqual(await call('chatter'), [ok(1), ok(2)]);
  });
  await t.test('whose schema takes for ever', async () => {
    assert.deepEqual(await call('pattern'), [ok(1), ok(2)]);
    const { spec } = (await open('pattern'))[1] as Tool;
    const read = checkedCall('0.0', spec.name, { x: `${'a'.repeat(50)}!` }, [spec]);
    assert.equal(read.status, 'ok');
  });
  await t.test('that never stops', async () => {
    for (const result of await call('notes', 500)) assert.equal(result.status, 'timeout');
    const [first] = await call('pings');
    assert.match(first?.text ?? '', /no answer among too much else/);
  });
  await t.test('whose tools cannot be shown or told apart', async () => {
    await assert.rejects(open('names'), failure('HandlerFailed', /names has a tool "x\\n```bash"/));
    await assert.rejects(open('huge'), failure('HandlerFailed', /huge says 3\d{5} characters of its tools/));
    await assert.rejects(open('twice'), failure('HandlerFailed', /two tools are called twice_x/));
  });
});
