import { z } from 'zod';
import { blocksIn } from '../../grading/blocks.ts';
import { LANGUAGES as LANGUAGES_KNOWN, type Language } from './problem.ts';

/** A program that somebody answered with. */
export const Submission = z.object({ language: z.enum(LANGUAGES_KNOWN), code: z.string() });
export type Submission = z.infer<typeof Submission>;

const LANGUAGES: Readonly<Record<string, Language>> = {
  ...{ python: 'python', py: 'python', python3: 'python' },
  ...{ cpp: 'cpp', 'c++': 'cpp', cc: 'cpp', cxx: 'cpp' },
};

/**
 * The program in a reply: the last fenced block in a language that is known, else the last block that names none, else
 * the reply as a whole. Pure.
 */
export function submissionIn(reply: string): Submission {
  const blocks = blocksIn(reply);
  const chosen =
    blocks.findLast(({ language }) => LANGUAGES[language]) ??
    blocks.findLast(({ language }) => language === '');
  const code = chosen?.content ?? reply;
  return { language: LANGUAGES[chosen?.language ?? ''] ?? languageOf(code), code };
}

function languageOf(code: string): Language {
  return /^\s*#\s*include\b/m.test(code) ? 'cpp' : 'python';
}
