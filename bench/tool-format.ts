/**
 * Which tool-call format can the small model that comes with the project follow? Runs the tasks of
 * examples/tasks/arithmetic.jsonl at temperature 1 with each format and a real bash, and prints a table and
 * a line of JSON. `npx tsx bench/tool-format.ts [samples per task]`
 */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import Table from 'cli-table3';
import { fenced } from '../activities/agent/parsers/fenced.ts';
import { hermes } from '../activities/agent/parsers/hermes.ts';
import type { ToolCallParser } from '../activities/agent/parsers/parser.ts';
import { sameMaths } from '../activities/grading/maths.ts';
import { PythonPools } from '../activities/grading/python-pools.ts';
import { statedAnswer } from '../activities/handlers/math/answers.ts';
import { parsePrompt } from '../activities/handlers/prompt-file.ts';
import type { ChatFormat } from '../activities/llm/codec.ts';
import { startEmbeddedLlm } from '../activities/llm/embedded/server.ts';
import { LlamaCppDialect } from '../activities/llm/llama-cpp.ts';
import { ChatRenderer } from '../activities/llm/renderer.ts';
import { bash } from '../activities/tools/bash.ts';
import { loadTools, PROJECT_ROOT } from '../config/tools.ts';
import type { ToolCall } from '../contracts/tools.ts';

const NEVER = new AbortController().signal;
const TURNS = 4;
const TOKENS_PER_TURN = 96;

interface Format {
  readonly name: string;
  readonly parser: ToolCallParser;
  /** How a call of this command is written. */
  readonly call: (command: string) => string;
  /** What the system message asks for, and what each question ends with. */
  readonly instruction: string;
  readonly reminder: string;
  /** llama.cpp grammar of a turn. It changes what is sampled: its log-probabilities are not the policy's. */
  readonly grammar?: string;
}

const hermesCall = (command: string) =>
  `<tool_call>\n${JSON.stringify({ name: 'bash', arguments: { command } })}\n</tool_call>`;
const HERMES = { instruction: 'call of the tool bash', reminder: 'Use the tool bash.' };

const FORMATS: readonly Format[] = [
  {
    name: 'fenced block',
    parser: fenced,
    call: (command) => `\`\`\`bash\n${command}\n\`\`\``,
    instruction: 'bash command',
    reminder: 'Use a bash block.',
  },
  { name: 'hermes JSON', parser: hermes, call: hermesCall, ...HERMES },
  {
    name: 'hermes JSON, grammar',
    parser: hermes,
    call: hermesCall,
    ...HERMES,
    grammar: [
      'root ::= call | answer',
      'call ::= "<tool_call>\\n{\\"name\\":\\"bash\\",\\"arguments\\":{\\"command\\":\\"" [^"\\\\\\n]+ "\\"}}\\n</tool_call>"',
      'answer ::= [^<\\\\\\n]* "\\\\boxed{" [0-9]+ "}."',
    ].join('\n'),
  },
];

const EXAMPLES: readonly (readonly [string, string, number])[] = [
  ['What is 21 plus 46?', '21 + 46', 67],
  ['Tom has 25 stamps. He finds 19 more. How many stamps does he have now?', '25 + 19', 44],
  ['What is 80 minus 35?', '80 - 35', 45],
  ['Sam has 30 dollars. He spends 12 dollars. How many dollars are left?', '30 - 12', 18],
  ['What is 12 times 7?', '12 * 7', 84],
  ['A box holds 12 pens. How many pens are in 7 boxes?', '12 * 7', 84],
  ['What is 72 divided by 6?', '72 / 6', 12],
  ['There are 64 cards and 8 players. How many cards does each player get?', '64 / 8', 8],
];

function promptOf({ instruction, call, reminder }: Format, question: string) {
  const worked = EXAMPLES.map(([asked, sum, result]) => {
    const turns = `# assistant\n${call(`echo $((${sum}))`)}\n# tool\n${result}\n# assistant\n`;
    return `# user\n${asked} ${reminder}\n${turns}The answer is \\boxed{${result}}.\n`;
  });
  const system = `Solve the problem with one ${instruction}. Then give the result as \\boxed{number}.`;
  return parsePrompt(`# system\n${system}\n${worked.join('')}# user\n{{question}} ${reminder}\n`, {
    question,
  });
}

/** Runs a command as the sandbox would: nothing to write to, no network. */
async function run(command: string, bwrap: string): Promise<string> {
  const sandbox = ['--ro-bind', '/', '/', '--dev', '/dev', '--tmpfs', '/tmp', '--chdir', '/tmp'];
  const flags = [...sandbox, '--unshare-all', '--die-with-parent', 'timeout', '5', 'bash', '-c', command];
  try {
    const { stdout, stderr } = await promisify(execFile)(bwrap, flags, { maxBuffer: 1 << 20 });
    return `${stdout}${stderr}`.trim().slice(0, 400);
  } catch (error) {
    const { stdout = '', stderr = '', code } = error as { stdout?: string; stderr?: string; code?: number };
    return `${stdout}${stderr}`.trim().slice(0, 400).concat(`\n[exit status ${code}]`).trim();
  }
}

interface Sample {
  readonly calls: ToolCall[];
  readonly answered: boolean;
  readonly correct: boolean;
  readonly tokens: number;
}

interface Setup {
  readonly llm: LlamaCppDialect;
  readonly renderer: ChatRenderer;
  readonly bwrap: string;
}

async function turnOf(
  { llm, renderer }: Setup,
  format: Format,
  promptIds: readonly number[],
  seed: number,
): Promise<{ ids: number[]; text: string }> {
  let ids: number[];
  if (format.grammar === undefined) {
    const request = { promptIds, maxTokens: TOKENS_PER_TURN, temperature: 1, topP: 1, seed };
    ({ ids } = await llm.generate(request, NEVER));
  } else {
    const { grammar } = format;
    const body = { prompt: promptIds, n_predict: TOKENS_PER_TURN, temperature: 1, samplers: ['temperature'] };
    const response = await fetch(`${llm.url}/completion`, {
      method: 'POST',
      body: JSON.stringify({ ...body, seed, grammar, return_tokens: true }),
    });
    ids = ((await response.json()) as { tokens: number[] }).tokens;
  }
  const said = ids.at(-1) === renderer.eosId ? ids.slice(0, -1) : ids;
  return { ids, text: await llm.detokenize(said, NEVER) };
}

const python = new PythonPools(() => loadTools().python);

async function sample(setup: Setup, format: Format, task: Task, seed: number): Promise<Sample> {
  let promptIds = await setup.renderer.initial(promptOf(format, task.question), NEVER);
  const calls: ToolCall[] = [];
  let tokens = 0;
  let said = '';
  for (let turn = 0; turn < TURNS; turn++) {
    const { ids, text } = await turnOf(setup, format, promptIds, seed + turn);
    tokens += ids.length;
    said = text;
    const made = format.parser.parse(text, [bash.spec], turn).calls;
    if (made.length === 0) break;
    calls.push(...made);
    const results = await Promise.all(
      made.map(async ({ status, problem, arguments: { command } }) => ({
        role: 'tool' as const,
        content: status === 'ok' ? await run(String(command), setup.bwrap) : (problem ?? ''),
      })),
    );
    promptIds = [...promptIds, ...ids, ...(await setup.renderer.delta(ids, results, NEVER))];
  }
  const answer = statedAnswer(said);
  const gold = statedAnswer(task.answer) ?? '';
  return {
    calls,
    tokens,
    answered: answer !== undefined,
    correct: answer !== undefined && (await sameMaths(python, { gold, given: answer })) === true,
  };
}

interface Task {
  readonly id: string;
  readonly question: string;
  readonly answer: string;
}

async function main(): Promise<void> {
  const samples = Number(process.argv[2] ?? 2);
  const file = path.join(PROJECT_ROOT, 'examples/tasks/arithmetic.jsonl');
  const tasks = (await readFile(file, 'utf8'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Task);
  const { python, model, bwrap } = loadTools();
  const server = await startEmbeddedLlm({
    python,
    model,
    port: 0,
    contextTokens: 2048,
    parallel: 4,
    threads: os.availableParallelism(),
    logFile: path.join(os.tmpdir(), 'tool-format-llm.log'),
  });
  const llm = new LlamaCppDialect(server.url);
  try {
    const { format } = await llm.describe(NEVER);
    const renderer = await ChatRenderer.create({ codec: llm, format: format as ChatFormat }, NEVER);
    const table = new Table({
      head: ['format', 'calls a tool', 'calls well-formed', 'answers', 'mean reward', 'tokens', 'seconds'],
    });
    const summary: Record<string, unknown> = {};
    for (const format of FORMATS) {
      const started = performance.now();
      const queue = Array.from({ length: samples }, (_, n) =>
        tasks.map((task, t) => ({ task, seed: n * 1000 + t * 10 })),
      );
      const jobs = queue.flat();
      const results: (Sample & { task: string })[] = [];
      const work = async () => {
        for (let job = jobs.shift(); job; job = jobs.shift()) {
          results.push({
            ...(await sample({ llm, renderer, bwrap }, format, job.task, job.seed)),
            task: job.task.id,
          });
        }
      };
      await Promise.all([work(), work(), work(), work()]);
      const mean = (of: (sample: Sample) => number) =>
        results.reduce((total, result) => total + of(result), 0) / results.length;
      const calls = results.flatMap((result) => result.calls);
      const row = {
        calls_tool: mean(({ calls: made }) => Number(made.some(({ status }) => status === 'ok'))),
        well_formed: calls.filter(({ status }) => status === 'ok').length / (calls.length || 1),
        answers: mean(({ answered }) => Number(answered)),
        mean_reward: mean(({ correct }) => Number(correct)),
        tokens: mean(({ tokens }) => tokens),
        seconds: (performance.now() - started) / 1000,
      };
      const byTask = tasks.map(({ id }) => {
        const own = results.filter(({ task }) => task === id);
        return [id, own.filter(({ correct }) => correct).length / own.length] as const;
      });
      summary[format.name] = { ...row, by_task: Object.fromEntries(byTask) };
      console.error(`${format.name}: ${JSON.stringify(row)}`);
      const percent = (value: number) => `${Math.round(value * 100)} %`;
      table.push([
        format.name,
        percent(row.calls_tool),
        percent(row.well_formed),
        percent(row.answers),
        row.mean_reward.toFixed(2),
        row.tokens.toFixed(0),
        row.seconds.toFixed(0),
      ]);
    }
    console.log(table.toString());
    console.log(JSON.stringify({ bench: 'tool-format', n: samples * tasks.length, formats: summary }));
  } finally {
    await llm.close();
    await server.stop();
  }
}

await main();
