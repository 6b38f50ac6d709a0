import { Context } from '@temporalio/activity';
import { tokenizerHashOf } from '../../activities/llm/identity.ts';
import type { TokenizerFolder } from '../../activities/llm/tokenizer-folder.ts';
import { assembleTrajectory } from '../../activities/trajectory/assemble.ts';
import type { TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { EvaluateActivities } from '../../contracts/stages.ts';
import { NEVER } from '../llm/embedded.ts';
import { usual } from '../workflows/scripted.ts';

/** One turn of a conversation, as text. */
export interface Said {
  readonly text: string;
  readonly command?: string;
  readonly output?: string;
  readonly exitCode?: number;
  readonly policyVersion?: number;
}

/** The ledger of a conversation, its tokens made by a real tokenizer. */
export async function ledgerOf(
  { codec }: TokenizerFolder,
  prompt: string,
  turns: readonly Said[],
): Promise<LedgerRecord[]> {
  const encode = (text: string) => codec.tokenize(text, { parseSpecial: true }, NEVER);
  const promptIds = await encode(`<|im_start|>user\n${prompt}<|im_end|>\n<|im_start|>assistant\n`);
  const hash = await tokenizerHashOf(codec, NEVER);
  const model = { name: 'm', model_hash: 'sha256:1', tokenizer_hash: hash, template_hash: 'sha256:3' };
  const messages = [{ role: 'user' as const, content: prompt }];
  const records: LedgerRecord[] = [{ kind: 'begin', promptIds, messages, tools: ['bash'], model }];
  let length = promptIds.length;
  const begun = Date.now();
  for (const [turn, { text, command, output = '', exitCode = 0, policyVersion = 3 }] of turns.entries()) {
    const ids = await encode(`${text}<|im_end|>`);
    const deltaIds =
      command === undefined
        ? []
        : await encode(`\n<|im_start|>tool\n${output}<|im_end|>\n<|im_start|>assistant\n`);
    const callId = `${turn}.0`;
    records.push({
      ...{ kind: 'sampled', turn, promptLength: length, ids, policyVersion, finish: 'stop', text },
      logprobs: ids.map((id, index) => -6 * (((id * 7919 + index * 104_729) % 1000) / 1000) ** 4 - 1e-4),
      calls:
        command === undefined
          ? []
          : [{ callId, tool: 'bash', arguments: { command }, status: 'ok' as const }],
      server: 'http://127.0.0.1:1',
      startedAt: new Date(begun + turn * 700).toISOString(),
      ms: 400,
    });
    if (command !== undefined) {
      records.push({
        ...{ kind: 'observed', turn, deltaIds },
        results: [{ callId, tool: 'bash', status: 'ok', exitCode, text: output, ms: 120 }],
        messages: [{ role: 'tool', content: output }],
      });
    }
    length += ids.length + deltaIds.length;
  }
  records.push({ kind: 'end', ended: 'finished', outcome: {} });
  return records;
}

/** An evaluate stage that keeps the trajectory of a ledger, and the terminal record, as the real one does. */
export function evaluateKeeping(
  store: TrajectoryStore,
  records: readonly LedgerRecord[],
): EvaluateActivities['evaluate'] {
  return async (input) => {
    const { request, attempt } = input;
    const workflowRunId = Context.current().info.workflowExecution?.runId as string;
    const result = await usual.evaluate(input);
    const context = { request, workflowRunId, attempt, reward: result.reward, metadata: {} };
    const key = { rolloutId: request.rolloutId, workflowRunId, attempt };
    const trajectory = await store.putTrajectory(key, [assembleTrajectory(records, context)]);
    return store.putTerminal({ ...result, trajectory });
  };
}
