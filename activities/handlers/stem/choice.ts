import { inLatin } from '../../grading/latex.ts';

const LETTER = /^\(?([A-Z])\)?(?:[.:)](?:\s|$)|$)/;
/** Alone, a small letter is one as well. */
const SMALL_LETTER = /^\(?[a-z]\)?$/;
/** What stands for a choice within a text: a letter by itself, if it is neither an article nor a unit. */
const LETTERS = /(?<![\p{L}\p{N}'’\\]|\d\s)([A-Z])(?![\p{L}\p{N}'’])(?!(?<=A)\s+\p{L})/gu;

/**
 * Which choice an answer names: by its letter (`C`, `(C)`, `C. text`), or by all of its text. Undefined if none, or more
 * than one. Pure.
 */
export function choiceIn(answer: string, choices: readonly string[]): number | undefined {
  const plain = tidy(answer).replace(/^(?:option|choice)\s+(?=\(?[A-Za-z]\)?(?:[.:)\s]|$))/i, '');
  const texts = choices.map((choice) => tidy(choice).toLowerCase());
  const same = indexesOf(texts, plain.toLowerCase());
  const named =
    LETTER.exec(plain) ??
    (same.length === 0 && SMALL_LETTER.test(plain) ? LETTER.exec(plain.toUpperCase()) : null);
  const index = indexOf(named?.[1]);
  if (!named || index >= choices.length) return same.length === 1 ? same[0] : undefined;
  const rest = plain.slice(named[0].length).trim();
  if (rest.toLowerCase() === texts[index]) return index;
  if (texts.includes(rest.toLowerCase())) return undefined;
  const own = lettersIn(tidy(choices[index] ?? ''));
  const others = lettersIn(rest).filter((letter) => indexOf(letter) < choices.length && letter !== named[1]);
  return others.every((letter) => own.includes(letter)) ? index : undefined;
}

/** Where a text stands, its spaces aside if it does not stand there as it is. */
function indexesOf(texts: readonly string[], text: string): number[] {
  const where = (plain: (text: string) => string) =>
    texts.flatMap((one, index) => (plain(one) === plain(text) ? [index] : []));
  const exact = where((one) => one);
  return exact.length > 0 || text === '' ? exact : where((one) => one.replaceAll(' ', ''));
}

function lettersIn(text: string): string[] {
  return [...text.matchAll(LETTERS)].map(([, letter = '']) => letter);
}

function indexOf(letter: string | undefined): number {
  return letter === undefined ? Number.POSITIVE_INFINITY : letter.charCodeAt(0) - 'A'.charCodeAt(0);
}

function tidy(text: string): string {
  return inLatin(text)
    .replace(/\\[,;:! ]/g, ' ')
    .replace(/\\[dt]frac(?![a-z])/g, '\\frac')
    .replace(/\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}/g, '$1')
    .replaceAll('**', '')
    .replace(/^\$(.*)\$$/, '$1')
    .replace(/(?<=.)\.$/, '')
    .replace(/\s+/g, ' ')
    .trim()
    .replace(/^["'`[{]([A-Za-z])["'`\]}]$/, '$1');
}
