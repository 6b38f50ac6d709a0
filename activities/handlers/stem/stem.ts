import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { RolloutError } from '../../../contracts/failures.ts';
import { type Quantity, quantityIn, readQuantity, sameQuantity } from '../../grading/quantities.ts';
import { ipython } from '../../tools/ipython.ts';
import { defineHandler, type EvaluateContext } from '../handler.ts';
import { agentsAnswer } from '../math/answers.ts';
import { loadPrompt } from '../prompt-file.ts';
import { choiceIn } from './choice.ts';
import { placeDocuments, search } from './search.ts';
import { searchService } from './search-service.ts';
import { type Question, questionOf, StemTask } from './task.ts';
import { sameWords } from './words.ts';

/** A model's verdict may wait for a server that is busy, or loads weights. */
const JUDGE_SECONDS = 300;

type Short = Extract<Question, { kind: 'short' }>;

const Verdict = z.object({ reason: z.string(), correct: z.boolean() });

/**
 * Questions of science: choices, quantities with units, words, and what only a judge can decide. `searchUrl`: a search
 * service for tasks that bring no documents.
 */
export function stemHandler({ searchUrl }: { readonly searchUrl?: string | undefined } = {}) {
  const service = searchUrl === undefined ? [] : [searchService(searchUrl)];
  const searches = ({ documents }: Question) => (documents.length > 0 ? [search] : service);
  return defineHandler<StemTask>({
    name: 'stem',
    description:
      'Science questions: multiple choice (MMLU, GPQA layouts) and short answers with units and tolerance.',
    schema: StemTask,
    example: { question: 'What is standard gravity?', answer: '9.81 m/s^2', tolerance: 0.01 },

    deadlines: (task) => {
      const question = questionOf(task);
      return question.kind === 'short' && question.rubric !== undefined
        ? { evaluateSeconds: JUDGE_SECONDS }
        : {};
    },
    tools: (task) => [ipython, ...searches(questionOf(task))],

    prompt: (task) => {
      const question = questionOf(task);
      const unit = question.kind === 'short' && question.unit ? `, in ${question.unit}` : '';
      return loadPrompt(new URL('./prompt.md', import.meta.url), {
        question: asked(question),
        form: question.kind === 'choice' ? ', the letter of your choice' : unit,
        search:
          searches(question).length > 0
            ? 'You can search documents: words in a block that begins with ```search.\n'
            : '',
      });
    },

    check: async ({ task, python, signal }) => {
      const question = questionOf(task);
      if (question.kind !== 'short') return;
      const gold = goldOf(question);
      if (gold === undefined && question.unit !== undefined) {
        throw new RolloutError(
          'InvalidTask',
          `answer: "${question.answer}" is no number, and the task has a unit`,
        );
      }
      if (gold === undefined || (await readQuantity(python, gold, signal)) !== null) return;
      throw new RolloutError('InvalidTask', `answer: the unit "${gold.unit}" is not known`);
    },

    init: async ({ task, sandbox }) => {
      const { documents } = questionOf(task);
      if (documents.length > 0) await placeDocuments(sandbox, documents);
    },

    outcome: async ({ task, said, messages }) => {
      const prompts = messages.filter(({ role }) => role === 'system' || role === 'user');
      const texts = [questionOf(task).question, ...prompts.map(({ content }) => content)];
      return { answer: agentsAnswer(said, texts) ?? null };
    },

    evaluate: async (context) => {
      const question = questionOf(context.task);
      const given = context.outcome.answer;
      const right = typeof given === 'string' && (await isRight(question, given, context));
      return {
        total: right ? 1 : 0,
        parts: { correct: right ? 1 : 0, answered: typeof given === 'string' ? 1 : 0 },
      };
    },
  });
}

function asked(question: Question): string {
  if (question.kind === 'short') return question.question;
  const choices = question.choices.map((choice, index) => `${String.fromCharCode(65 + index)}. ${choice}`);
  return `${question.question}\n\n${choices.join('\n')}`;
}

async function isRight(
  question: Question,
  given: string,
  context: EvaluateContext<StemTask>,
): Promise<boolean> {
  if (question.kind === 'choice') return choiceIn(given, question.choices) === question.right;
  if (question.rubric !== undefined) return judged({ ...question, rubric: question.rubric }, given, context);
  const gold = goldOf(question);
  if (!gold) return [question.answer, ...question.aliases].some((answer) => sameWords(given, answer));
  const read = quantityIn(given);
  if (!read) return false;
  const quantity = read.unit === '' && question.unit !== undefined ? { ...read, unit: gold.unit } : read;
  return sameQuantity(context.python, { gold, given: quantity, ...question.tolerance }, context.signal);
}

/** The gold answer as a quantity, if it begins with a number; its unit may stand in a field of its own. */
function goldOf({ answer, unit }: Short): Quantity | undefined {
  return quantityIn(unit === undefined ? answer : `${answer} ${unit}`);
}

/** What a judge model says. @throws RolloutError GraderFailed if there is none, or it does not say so clearly */
async function judged(
  { question, answer: gold, rubric }: Short & { readonly rubric: string },
  given: string,
  { judge, signal }: EvaluateContext<StemTask>,
): Promise<boolean> {
  if (!judge)
    throw new RolloutError('GraderFailed', 'the task has a rubric, and no judge model is there to follow it');
  // An answer cannot close a mark that it does not know.
  const mark = randomBytes(8).toString('hex');
  const messages = await loadPrompt(new URL('./judge.md', import.meta.url), {
    question,
    gold,
    rubric,
    given,
    mark,
  });
  const reply = await judge.ask(messages, signal);
  const verdict = verdictIn(reply);
  if (!verdict) throw new RolloutError('GraderFailed', `the judge gave no verdict: ${reply.slice(0, 200)}`);
  return verdict.correct;
}

/** The last verdict of a reply: one before it may be quoted from the answer. Its reason may hold braces. Pure. */
function verdictIn(reply: string): z.infer<typeof Verdict> | undefined {
  const end = reply.lastIndexOf('}') + 1;
  for (let at = reply.lastIndexOf('{', end); at >= 0; at = at === 0 ? -1 : reply.lastIndexOf('{', at - 1)) {
    try {
      const { data } = Verdict.safeParse(JSON.parse(reply.slice(at, end)));
      if (data) return data;
    } catch {
      // not the brace that the last one closes
    }
  }
  return undefined;
}
