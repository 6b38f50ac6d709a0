import { createHash } from 'node:crypto';
import { z } from 'zod';
import { Limits, RolloutId, type RolloutRequestInput, Sampling } from '../../contracts/request.ts';

/** Batch of every rollout that is begun by this API: by it they are counted, and ended when it is stopped. */
export const PROCESS_BATCH = 'process';

/** What the reference system takes an instance for that names no source. */
const DEFAULT_SOURCE = 'swebench';

/**
 * What a trainer of ProRL Agent posts to `/process` (read where its server takes it, scripts/start_server.py, and where
 * trainers call it). Of `sampling_params`, which go to its own client of LLM servers, those are taken that concern
 * sampling; `model`, `api_key` and the like say what the pool of LLM servers knows here.
 */
export const ProcessRequest = z.looseObject({
  /** The same id again is the same rollout. */
  job_id: z.string().min(1).max(200).nullish(),
  instance: z.looseObject({
    data_source: z.string().min(1).max(200).nullish(),
    instance_id: z.union([z.string(), z.int()]).nullish(),
    trajectory_id: z.union([z.string(), z.int()]).nullish(),
  }),
  sampling_params: z
    .looseObject({
      temperature: Sampling.shape.temperature.unwrap().nullish(),
      top_p: Sampling.shape.topP.unwrap().nullish(),
      seed: Sampling.shape.seed.unwrap().nullish(),
      max_output_tokens: Sampling.shape.maxTokensPerTurn.unwrap().nullish(),
      max_iterations: Limits.shape.maxTurns.unwrap().nullish(),
      /** Answers have tokens in either case. */
      token_level_generation: z.boolean().nullish(),
    })
    .default({}),
});
export type ProcessRequest = z.infer<typeof ProcessRequest>;

/** Sampling and limits where the call says nothing. */
export type ProcessDefaults = Pick<RolloutRequestInput, 'sampling' | 'limits'>;

/** The id of the rollout of a job. */
export function rolloutIdOf(jobId: string): string {
  const plain = `${PROCESS_BATCH}:${jobId}`;
  if (RolloutId.safeParse(plain).success) return plain;
  return `${PROCESS_BATCH}:${createHash('sha256').update(jobId).digest('hex')}`;
}

/**
 * The rollout that an instance stands for. `handlers` tells the kind of task of each `data_source`; a source that it
 * doesn't name is the name of a handler. Pure.
 */
export function rolloutOf(
  { instance, sampling_params: given }: ProcessRequest,
  handlers: Readonly<Record<string, string>>,
  defaults: ProcessDefaults,
): Omit<RolloutRequestInput, 'rolloutId'> {
  const source = instance.data_source ?? DEFAULT_SOURCE;
  const id = instanceIdOf(instance);
  const trajectory = Number(instance.trajectory_id ?? 0);
  return {
    task: { handler: handlers[source] ?? source, id, data: dataOf(instance) },
    ...(Number.isInteger(trajectory) && trajectory >= 0 ? { sample: trajectory } : {}),
    groupId: id,
    batchId: PROCESS_BATCH,
    sampling: {
      ...defaults.sampling,
      ...present({
        temperature: given.temperature,
        topP: given.top_p,
        seed: given.seed,
        maxTokensPerTurn: given.max_output_tokens,
      }),
    },
    limits: { ...defaults.limits, ...present({ maxTurns: given.max_iterations }) },
  };
}

/** As the reference system makes an id for an instance that has none: of its source and place in the data set. */
function instanceIdOf(instance: ProcessRequest['instance']): string {
  const { instance_id: id, data_source: source, extra_info: extra } = instance;
  if (id !== undefined && id !== null && id !== '') return String(id).slice(0, 200);
  const { name, split, index } = (extra ?? {}) as Record<string, unknown>;
  return [source, name, split, index]
    .map((part) => String(part ?? 'unknown'))
    .join('_')
    .slice(0, 200);
}

/** A row of verl's layout has its question in `prompt` and its answer in `reward_model`; handlers know plainer names. */
function dataOf(instance: ProcessRequest['instance']): Record<string, unknown> {
  const { trajectory_id: _, ...data } = instance as Record<string, unknown>;
  const prompt = Array.isArray(data.prompt) ? data.prompt : [];
  const question = prompt.findLast((message) => message?.role === 'user')?.content;
  const answer = (data.reward_model as { ground_truth?: unknown } | undefined)?.ground_truth;
  return {
    ...(typeof question === 'string' && data.problem === undefined ? { question } : {}),
    ...(typeof answer === 'string' || typeof answer === 'number' ? { answer: String(answer) } : {}),
    ...data,
  };
}

function present<T extends object>(fields: T): { [key in keyof T]?: NonNullable<T[key]> } {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(given) as never;
}
