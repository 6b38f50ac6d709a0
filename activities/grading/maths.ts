import { z } from 'zod';
import { asLatex } from './latex.ts';
import type { PythonPrograms } from './python-pools.ts';

const PROGRAM = new URL('./maths.py', import.meta.url);
/** Seconds of processor time that one comparison may take; most take 0.01. */
const SECONDS = 5;
/** Characters of an answer that can be one: what is longer is no answer, and not worth a parser's time. */
const MOST_CHARACTERS = 2000;
/** Brackets inside each other, for the same reason. */
const DEEPEST = 40;

/**
 * Whether an answer is mathematically the gold one, as Hugging Face's Math-Verify judges it, in the
 * writing that `latex.ts` gives it.
 * @throws RolloutError GraderFailed if that takes too long, crashes, or the gold answer can't be read
 */
export async function sameMaths(
  python: PythonPrograms,
  { gold, given }: { readonly gold: string; readonly given: string },
  signal?: AbortSignal,
): Promise<boolean> {
  if (!mayBeAnswer(given)) return false;
  const request = { op: 'same', gold: asLatex(gold), given: asLatex(given) };
  return z.boolean().parse(await python.ask(PROGRAM, request, options(signal)));
}

/** What Math-Verify reads a text as; null if it can't. @throws RolloutError GraderFailed */
export async function readMaths(
  python: PythonPrograms,
  text: string,
  signal?: AbortSignal,
): Promise<string | null> {
  if (!mayBeAnswer(text)) return null;
  return z
    .string()
    .nullable()
    .parse(await python.ask(PROGRAM, { op: 'parse', text: asLatex(text) }, options(signal)));
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
