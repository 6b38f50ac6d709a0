import type { Language } from './problem.ts';

/** A program that somebody answered with. */
export interface Submission {
  readonly language: Language;
  readonly code: string;
}

const FENCE = /^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*\n([\s\S]*?)^[ \t]*\1[ \t]*$/gm;
const LANGUAGES: Readonly<Record<string, Language>> = {
  ...{ python: 'python', py: 'python', python3: 'python' },
  ...{ cpp: 'cpp', 'c++': 'cpp', cc: 'cpp', cxx: 'cpp' },
};

/**
 * The program in a reply: the last fenced block in a language that is known, else the last block that names none, else
 * the reply as a whole. Pure.
 */
export function submissionIn(reply: string): Submission {
  const blocks = [...reply.replaceAll('\r\n', '\n').matchAll(FENCE)];
  const named = blocks.findLast(([, , name]) => LANGUAGES[(name ?? '').toLowerCase()]);
  const chosen = named ?? blocks.findLast(([, , name]) => name === '');
  const code = chosen?.[3] ?? reply;
  return { language: LANGUAGES[(chosen?.[2] ?? '').toLowerCase()] ?? languageOf(code), code };
}

function languageOf(code: string): Language {
  return /^\s*#\s*include\b/m.test(code) ? 'cpp' : 'python';
}
