import { createHash } from 'node:crypto';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { wholeTemplate } from '../../client/submission.ts';
import { readTasks } from '../../client/tasks-file.ts';
import type { TaskSource } from '../../contracts/batch.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { RolloutTemplate } from '../../contracts/group.ts';
import { GroupId } from '../../contracts/group-rules.ts';
import { CancelReason, RolloutRequest } from '../../contracts/request.ts';
import { Task } from '../../contracts/task.ts';
import { type Tenant, TenantName } from '../../contracts/tenant.ts';
import { asAsked, overConfigured } from '../as-asked.ts';
import type { Caller } from '../auth.ts';
import type { Gateway } from '../gateway.ts';
import { HttpProblem } from '../problems.ts';
import { taskFile } from '../task-file.ts';

/*
 * What the routes of groups and of batches have in common.
 */

/** What of a rollout may be other than configured; the same for all of a group. */
export const Template = z.object(
  asAsked(
    RolloutRequest.omit({
      ...{ rolloutId: true, task: true, sample: true, groupId: true, batchId: true },
      ...{ digest: true, reportTo: true, tenant: true },
    }),
  ),
);

/** On whose behalf something is begun. */
export const Whose = TenantName.optional().describe(
  'Whose it is. Not set: the caller’s own, by the name of its token; another’s takes the scope admin.',
);

/** Where a batch's tasks come from. */
export const Source = z
  .object({
    tasks: z.array(Task).min(1).optional().describe('The tasks themselves.'),
    file: z.string().min(1).optional().describe('JSONL or Parquet, as the gateway’s machine sees it.'),
    handler: z.string().min(1).optional().describe('Of the file’s tasks.'),
    weight: z.number().gt(0).default(1).describe('How often it is drawn from, beside the others.'),
    seed: z.int().min(0).optional().describe('Tasks are drawn in an order of its own; in theirs if not set.'),
    skip: z
      .int()
      .min(0)
      .default(0)
      .describe(
        'Tasks that are drawn last. The next batch over the same tasks skips what this one has drawn.',
      ),
    domain: z.string().min(1).max(100).optional().describe('What it is called in counts.'),
  })
  .refine(
    ({ tasks, file, handler }) => (tasks === undefined) === (file !== undefined && handler !== undefined),
    {
      message: 'either tasks, or file and handler',
    },
  );

/** Makes a call idempotent, as the id in the body does. */
export const Key = z.object({ 'idempotency-key': GroupId.optional() });
/** Seconds that a call may wait. */
export const Wait = z.object({ wait: z.coerce.number().min(0).max(60).default(0) });
/** Why something is cancelled. */
export const Reason = z.object({ reason: CancelReason.default('user') }).nullish();

/**
 * A source that a caller has named, `at` this place of the body, with its tasks checked and kept.
 * @throws HttpProblem 422 naming the first that is wrong
 */
export async function sourceOf(
  gateway: Gateway,
  caller: Caller | undefined,
  source: z.infer<typeof Source>,
  at: string,
): Promise<TaskSource> {
  const tasks: Task[] = [];
  if (source.tasks) {
    for (const [row, task] of source.tasks.entries()) {
      const place = `${at}/tasks/${row}`;
      gateway.checkTask(task, { handler: `${place}/handler`, data: `${place}/data` });
      tasks.push(task);
    }
  } else {
    const { file = '', handler = '' } = source;
    const refused = (detail: string) => {
      const cause = new RolloutError('InvalidTask', detail);
      return new HttpProblem(422, detail, [{ field: `${at}/file`, detail }], undefined, { cause });
    };
    const real = await taskFile(file, gateway.config.gateway, caller).catch((error) => {
      throw refused(`${file}: ${messageOf(error)}`);
    });
    const bad = ({ line, problem }: { line: number; problem: string }) => {
      throw refused(`${file}, line ${line}: ${problem}`);
    };
    for await (const task of readTasks(real, handler, gateway.handlers, bad)) tasks.push(task);
  }
  const { weight, seed, skip, domain = tasks[0]?.handler ?? 'none' } = source;
  const set = await gateway.groupStore.putTasks(seed === undefined ? tasks : shuffled(tasks, seed));
  return { ...set, weight, domain, ...(skip === 0 ? {} : { skip }) };
}

/** In an order that follows from the seed alone, so that the same call again stands for the same tasks. */
function shuffled(tasks: readonly Task[], seed: number): Task[] {
  const place = (at: number) => createHash('sha256').update(`${seed} ${at}`).digest('hex');
  return tasks
    .map((task, at) => ({ task, place: place(at) }))
    .sort((a, b) => (a.place < b.place ? -1 : 1))
    .map(({ task }) => task);
}

/** What each rollout is begun with: as configured, but for what was asked. */
export function templateOf(
  gateway: Gateway,
  asked: z.infer<typeof Template>,
  tenant: Tenant | undefined,
): RolloutTemplate {
  return wholeTemplate({ ...overConfigured(gateway.config, asked), ...(tenant ? { tenant } : {}) });
}

/** @throws HttpProblem 409 if another request has this id */
export function sameOr409(
  known: { isNew: boolean; digest: string | undefined },
  digest: string,
  what: string,
): void {
  if (!known.isNew && known.digest !== digest)
    throw new HttpProblem(409, `${what} was begun with another request`);
}

/** @throws HttpProblem 404 if there is no such workflow */
export async function known<T>(asking: Promise<T>, what: string): Promise<T> {
  try {
    return await asking;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) throw new HttpProblem(404, `there is no ${what}`);
    throw error;
  }
}

/** Aborted when the answer is sent or the caller hangs up. */
export function goneWith(reply: Pick<FastifyReply, 'raw'>): AbortSignal {
  const gone = new AbortController();
  reply.raw.once('close', () => gone.abort());
  return gone.signal;
}
