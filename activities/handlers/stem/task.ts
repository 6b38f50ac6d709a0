import { createHash } from 'node:crypto';
import { z } from 'zod';
import { rowsOf } from '../layouts.ts';

const Choices = z.array(z.string().min(1)).min(2).max(26);
const text = z.string().min(1);

const Common = {
  /** What the agent can search, if there is anything. */
  documents: z.array(z.object({ title: z.string().default(''), text })).optional(),
};

/** MMLU's layout, and MMLU-Pro's `options`; the answer is an index or a letter. */
const MultipleChoice = z
  .looseObject({
    question: text,
    choices: Choices.optional(),
    options: Choices.optional(),
    answer: z.union([z.int().min(0), z.string().regex(/^[A-Z]$/, 'expected an index or a letter')]),
    ...Common,
  })
  .refine((row) => indexOf(row.answer) < (row.choices ?? row.options ?? []).length, {
    path: ['answer'],
    message: 'is none of the choices',
  });

/** GPQA's layout. */
const Gpqa = z.looseObject({
  Question: text,
  'Correct Answer': text,
  'Incorrect Answer 1': text,
  'Incorrect Answer 2': text,
  'Incorrect Answer 3': text,
  ...Common,
});

/** A short answer: a quantity, or words. */
const ShortAnswer = z.looseObject({
  question: text,
  answer: z.union([text, z.number()]).transform(String),
  /** The unit that is asked for; an answer without one is then in it. */
  unit: text.optional(),
  /** Largest difference: a share of the gold answer, or also so much in its unit. */
  tolerance: z
    .union([
      z.number().min(0),
      z.strictObject({ relative: z.number().min(0).default(0), absolute: z.number().min(0).default(0) }),
    ])
    .optional(),
  /** Further answers that are right, where the answer is words. */
  aliases: z.array(text).optional(),
  /** How a judge model is to decide; without it, no model is asked. */
  rubric: text.optional(),
  ...Common,
});

/** A share: what rounding to three digits may change, and a little more. */
const USUAL_TOLERANCE = { relative: 0.01, absolute: 0 };

/** A question as the grader works with it. */
export type Question = { readonly question: string; readonly documents: readonly Document[] } & (
  | { readonly kind: 'choice'; readonly choices: readonly string[]; readonly right: number }
  | {
      readonly kind: 'short';
      readonly answer: string;
      readonly unit: string | undefined;
      readonly tolerance: { readonly relative: number; readonly absolute: number };
      readonly aliases: readonly string[];
      readonly rubric: string | undefined;
    }
);
export interface Document {
  readonly title: string;
  readonly text: string;
}

const schemaOf = (row: StemTask) => {
  if (row.Question !== undefined) return Gpqa;
  return row.choices !== undefined || row.options !== undefined ? MultipleChoice : ShortAnswer;
};

/** A row of one of the data sets, its fields as they are there. */
export const StemTask = z
  .record(z.string(), z.unknown())
  .superRefine((row, context) => {
    const { error } = schemaOf(row).safeParse(row);
    for (const { path, message } of error?.issues ?? []) context.addIssue({ code: 'custom', path, message });
  })
  .meta(
    rowsOf(
      'A row of MMLU, MMLU-Pro or GPQA, or a question with a short answer (unit, tolerance, aliases, rubric).',
      { 'MMLU, MMLU-Pro': MultipleChoice, GPQA: Gpqa, 'short answer': ShortAnswer },
    ),
  );
export type StemTask = z.infer<typeof StemTask>;

/** The question that a row asks; the row has passed {@link StemTask}. */
export function questionOf(row: StemTask): Question {
  const schema = schemaOf(row);
  if (schema === Gpqa) {
    const task = Gpqa.parse(row);
    const right = task['Correct Answer'];
    const wrong = [task['Incorrect Answer 1'], task['Incorrect Answer 2'], task['Incorrect Answer 3']];
    // In an order that has nothing to do with which is right, and is always the same.
    const choices = [right, ...wrong].sort((a, b) =>
      hash(task.Question + a).localeCompare(hash(task.Question + b)),
    );
    const { Question: question, documents = [] } = task;
    return { kind: 'choice', question, choices, right: choices.indexOf(right), documents };
  }
  if (schema === MultipleChoice) {
    const { question, choices, options, answer, documents = [] } = MultipleChoice.parse(row);
    return { kind: 'choice', question, choices: choices ?? options ?? [], right: indexOf(answer), documents };
  }
  const { question, answer, unit, tolerance, aliases = [], rubric, documents = [] } = ShortAnswer.parse(row);
  const bounds =
    typeof tolerance === 'number' ? { relative: tolerance, absolute: 0 } : (tolerance ?? USUAL_TOLERANCE);
  return { kind: 'short', question, answer, unit, tolerance: bounds, aliases, rubric, documents };
}

function indexOf(answer: number | string): number {
  return typeof answer === 'number' ? answer : answer.charCodeAt(0) - 'A'.charCodeAt(0);
}

const hash = (value: string) => createHash('sha256').update(value).digest('hex');
