import { createHash } from 'node:crypto';
import { stringify } from 'safe-stable-stringify';
import type { RolloutTemplate } from '../contracts/group.ts';
import { RolloutRequest, type RolloutRequestInput } from '../contracts/request.ts';

/*
 * What groups and batches are begun with, whoever begins them.
 */

/** What each rollout of a group is begun with, whole: what is absent is the default. */
export function wholeTemplate(request: Omit<RolloutRequestInput, 'rolloutId' | 'task'>): RolloutTemplate {
  const {
    rolloutId: _,
    task: __,
    sample: ___,
    ...rest
  } = RolloutRequest.parse({
    ...request,
    rolloutId: 'template',
    task: { handler: 'template', id: 'template', data: {} },
  });
  return rest;
}

/** By which the same request is known again. */
export const digestOf = (asked: unknown) =>
  createHash('sha256')
    .update(stringify(asked) ?? '')
    .digest('hex');
