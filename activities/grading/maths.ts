import { z } from 'zod';
import { asLatex } from './latex.ts';
import type { PythonPrograms } from './python-pools.ts';
import { Unanswerable } from './python-worker.ts';

const PROGRAM = new URL('./maths.py', import.meta.url);
/** Seconds of processor time that one comparison may take; most take 0.01. */
const SECONDS = 5;
/** Characters of an answer that can be one: what is longer is no answer, and not worth a parser's time. */
const MOST_CHARACTERS = 2000;
/** An answer that nothing but the gold one could make hard to compare. */
const SIMPLE = '1';
/** Brackets inside each other, for the same reason. */
const DEEPEST = 40;

/**
 * Whether an answer is mathematically the gold one, as Hugging Face's Math-Verify judges it, in the writing that
 * `latex.ts` gives it. `uncomputable`: it would take Math-Verify too long, or ends it, while the gold answer does not: so
 * it is the answer's own doing.
 * @throws RolloutError GraderFailed if the gold answer can't be read or computed, or the workers are killed
 */
export async function sameMaths(
  python: PythonPrograms,
  { gold, given }: { readonly gold: string; readonly given: string },
  signal?: AbortSignal,
): Promise<boolean | 'uncomputable'> {
  if (!mayBeAnswer(given)) return false;
  const base = baseOf(given);
  if (base !== undefined && base !== (baseOf(gold) ?? 10)) return false;
  const compare = async (text: string) => {
    const request = { op: 'same', gold: asLatex(gold), given: asLatex(text) };
    return z.boolean().parse(await python.ask(PROGRAM, request, options(signal)));
  };
  try {
    return await compare(given);
  } catch (error) {
    if (!(error instanceof Unanswerable)) throw error;
    await compare(SIMPLE);
    return 'uncomputable';
  }
}

/** What Math-Verify reads a text as; null if it can't, or can compare nothing with it. @throws RolloutError GraderFailed */
export async function readMaths(
  python: PythonPrograms,
  text: string,
  signal?: AbortSignal,
): Promise<string | null> {
  if (!mayBeAnswer(text)) return null;
  const asked = python.ask(PROGRAM, { op: 'parse', text: asLatex(text) }, options(signal));
  const said = await asked.catch((error) => {
    if (error instanceof Unanswerable) return null;
    throw error;
  });
  return z.string().nullable().parse(said);
}

/** The base that a number says it is written in, which Math-Verify leaves out. */
function baseOf(text: string): number | undefined {
  const [, base] = /^\(*[\dA-F]+\)*_(?:\{\s*)?(\d{1,2})(?:\s*\})?$/.exec(asLatex(text)) ?? [];
  return base === undefined ? undefined : Number(base);
}

function mayBeAnswer(text: string): boolean {
  let [depth, deepest] = [0, 0];
  for (const character of text) {
    if ('{[('.includes(character)) deepest = Math.max(deepest, ++depth);
    else if ('}])'.includes(character)) depth--;
  }
  return text.length <= MOST_CHARACTERS && deepest <= DEEPEST;
}

function options(signal: AbortSignal | undefined) {
  return { seconds: SECONDS, ...(signal && { signal }) };
}
