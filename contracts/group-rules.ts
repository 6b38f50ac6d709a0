import { z } from 'zod';

/** Ids of groups and batches: rollouts are called after them, `<group>.<number>`. */
export const GroupId = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._:-]{0,149}$/, 'letters, digits and . _ : - only, at most 150');

/** What happens to samples that a limit cut (DAPO, arXiv 2503.14476, section 3.4). */
export const Overlong = z
  .discriminatedUnion('mode', [
    z.object({ mode: z.literal('mask') }),
    z.object({ mode: z.literal('drop') }),
    z.object({ mode: z.literal('keep') }),
    z.object({
      mode: z.literal('penalty'),
      /** Tokens after the prompt from which a sample costs 1; it begins to cost `cache` tokens earlier. */
      maxTokens: z.int().min(1),
      cache: z.int().min(1),
    }),
  ])
  .describe(
    'Samples that a limit cut: mask (they count for the group, and are not trained on), drop, keep, or penalty: all ' +
      'keep their place, and the reward falls linearly by up to 1 over the last `cache` of `maxTokens` tokens.',
  );
export type Overlong = z.infer<typeof Overlong>;

/** A group cannot want more rewards than it has samples. */
export const FITS = {
  check: ({ samples, minSamples }: { samples: number; minSamples?: number | undefined }) =>
    minSamples === undefined || minSamples <= samples,
  says: { path: ['minSamples'], message: 'at most `samples`' },
};

/** What a group wants. */
export const GroupRules = z
  .object({
    samples: z.int().min(1).max(1024).default(8).describe('Rollouts of one task.'),
    minSamples: z
      .int()
      .min(1)
      .max(1024)
      .optional()
      .describe('Rewards with which it is whole; all if absent.'),
    replacements: z
      .int()
      .min(0)
      .max(1024)
      .default(4)
      .describe('Rollouts begun in the place of those that infrastructure or staleness ended.'),
    deadlineSeconds: z
      .number()
      .min(1)
      .max(31_536_000)
      .default(86_400)
      .describe('Seconds after which what is still open is cancelled.'),
    uniformVersion: z
      .boolean()
      .default(false)
      .describe('Whole only if all tokens of all samples have one policy version.'),
    overlong: Overlong.default({ mode: 'mask' }),
  })
  .refine(FITS.check, FITS.says);
export type GroupRules = z.infer<typeof GroupRules>;

/** A batch is carried from one history to the next in one payload. */
export const MOST_GROUPS = 1_000;

/** What a batch wants (dynamic sampling of DAPO, arXiv 2503.14476, section 3.2). */
export const BatchRules = z.object({
  groups: z.int().min(1).max(MOST_GROUPS).describe('Groups that the batch is full with.'),
  adaptive: z
    .object({ most: z.int().min(1).max(MOST_GROUPS) })
    .optional()
    .describe(
      'Not `groups` but min(most, ⌊groups·(1 + ln(max(1, rollouts that ended in the last 10 min)))⌋).',
    ),
  dropEqual: z
    .boolean()
    .default(true)
    .describe('Groups with equal rewards are dropped, counted and replaced.'),
  oversampling: z
    .number()
    .min(1)
    .max(16)
    .default(1.25)
    .describe('Groups under way for each that is still wanted.'),
  openGroups: z.int().min(1).max(MOST_GROUPS).optional().describe('Groups open at once, at most.'),
  attemptsPerTask: z.int().min(1).max(1000).default(1).describe('Groups that one task may be given to.'),
  deadlineSeconds: z
    .number()
    .min(1)
    .max(31_536_000)
    .default(604_800)
    .describe('Seconds after which the batch ends with the groups that it has.'),
  surplus: z
    .enum(['cancel', 'carry'])
    .default('cancel')
    .describe('Groups that a full batch leaves over: cancelled (batchComplete), or kept for the next batch.'),
  carryFrom: GroupId.optional().describe('The batch before, whose surplus this one takes over first.'),
  staleness: z
    .int()
    .min(0)
    .optional()
    .describe(
      'Versions that the oldest token of a group may lie behind the policy at the start of the batch.',
    ),
});
export type BatchRules = z.infer<typeof BatchRules>;
