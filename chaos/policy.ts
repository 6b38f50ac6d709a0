import { createHash } from 'node:crypto';
import { ChaosTask, TOOL_SECONDS } from './tasks.ts';
import { ASSISTANT, decode, END, encode } from './tokens.ts';

/** What the policy says next, and where in the rollout that is. */
export interface Reply {
  readonly task: ChaosTask;
  readonly turn: number;
  /** Tokens of this turn that the prompt has already. */
  readonly said: number;
  readonly ids: number[];
  /** Of each token, within the distribution that it was sampled from. */
  readonly probabilities: number[];
}

/**
 * The recorded policy: its reply is a function of the prompt's ids and of nothing else, down to the last one,
 * since every command carries a digest of the prompt. A rollout that anything has changed says so from then on.
 * @throws Error for a prompt that goes on with a turn otherwise than this policy would
 */
export function replyTo(promptIds: readonly number[]): Reply {
  const start = lastAnswer(promptIds);
  const prompt = promptIds.slice(0, start);
  const text = decode(prompt);
  const found = /Task (\{.*\})/.exec(text)?.[1];
  if (start < 0 || !found) throw new Error('the prompt is none of this suite’s');
  const task = ChaosTask.parse(JSON.parse(found));
  const turn = text.split('<|im_start|>assistant\n').length - 2;
  const digest = createHash('sha256').update(prompt.join()).digest('hex').slice(0, 12);
  const whole = [...encode(words(task, turn, digest)), END];
  const said = promptIds.slice(start);
  if (said.some((id, index) => id !== whole[index])) {
    throw new Error(`turn ${turn} of ${task.name} was begun by somebody else`);
  }
  const ids = whole.slice(said.length);
  const probabilities = ids.map((_, index) => probability(digest, said.length + index));
  return { task, turn, said: said.length, ids, probabilities };
}

/** Where the answer begins that the prompt is open for. */
function lastAnswer(ids: readonly number[]): number {
  for (let at = ids.length - ASSISTANT.length; at >= 0; at--) {
    if (ASSISTANT.every((id, index) => ids[at + index] === id)) return at + ASSISTANT.length;
  }
  return -1;
}

function words(task: ChaosTask, turn: number, digest: string): string {
  if (turn >= task.turns - 1) return `\`\`\`finish\n${digest}\n\`\`\``;
  const dice = Number.parseInt(digest.slice(0, 4), 16);
  const calls = [command(task, turn, `${turn}.0 ${digest}`, dice)];
  if (dice % 4 === 0) calls.push(command(task, -1, `${turn}.1 ${digest}`, dice >> 4));
  return calls.map((call) => `\`\`\`bash\n${call}\n\`\`\``).join('\n');
}

/** Leaves a line that shows for good that it ran, takes a moment, and says how many have run. */
function command(task: ChaosTask, turn: number, line: string, dice: number): string {
  const special = turn === 1 ? SPECIAL_COMMANDS[task.kind] : undefined;
  const moment = special ?? `sleep 0.${dice % 6}`;
  return `echo ${line} >> calls\n${moment}\nwc -l < calls`;
}

const SPECIAL_COMMANDS: Partial<Record<ChaosTask['kind'], string>> = {
  memory: `python3 -c 'x = [bytes([1]) * (1 << 20) for _ in iter(int, 1)]' 2>/dev/null`,
  timeout: `sleep ${TOOL_SECONDS.short * 20}`,
  fails: 'wc -l < calls; (exit 7)\nexit 9',
};

function probability(digest: string, position: number): number {
  const hash = createHash('sha256').update(`${digest}/${position}`).digest().readUInt32BE(0);
  return 0.05 + (0.95 * hash) / 2 ** 32;
}
