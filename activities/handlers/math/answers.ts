/**
 * Which part of a text is its answer, and whether two answers are the same number or the same words. Pure.
 */

/**
 * The answer that a solution states: the content of its last `\boxed{…}`, else what follows the last `####`,
 * else what follows the last "answer is" or "answer:" on that line. Undefined if it states none: a number
 * that merely stands last is not an answer.
 */
export function statedAnswer(text: string): string | undefined {
  return lastBoxed(text) ?? lastMatch(text, /####[ \t]*([^\n]+)/g) ?? lastMatch(text, ANSWER_PHRASE);
}

const ANSWER_PHRASE = /\banswer(?:[ \t]+is|[ \t]*:)[ \t]*:?[ \t]*([^\n]+)/gi;

function lastMatch(text: string, pattern: RegExp): string | undefined {
  const answer = [...text.matchAll(pattern)].at(-1)?.[1]?.trim();
  return answer === '' ? undefined : answer;
}

/** Content of the last `\boxed{…}` whose braces close; braces inside it count. */
function lastBoxed(text: string): string | undefined {
  for (
    let start = text.lastIndexOf('\\boxed{');
    start >= 0;
    start = text.lastIndexOf('\\boxed{', start - 1)
  ) {
    const open = start + '\\boxed{'.length;
    let depth = 1;
    for (let index = open; index < text.length; index++) {
      if (text[index] === '{') depth++;
      if (text[index] === '}') depth--;
      if (depth === 0) return text.slice(open, index).trim() || undefined;
    }
    if (start === 0) break;
  }
  return undefined;
}

/** A rational number in lowest terms, denominator positive. */
interface Rational {
  readonly numerator: bigint;
  readonly denominator: bigint;
}

/** True if both are the same number exactly (0.5 is 1/2 is \frac{1}{2}), or else the same words. */
export function sameAnswer(given: string, gold: string): boolean {
  const [a, b] = [numberIn(given), numberIn(gold)];
  if (a && b) return a.numerator === b.numerator && a.denominator === b.denominator;
  return tidy(given) === tidy(gold);
}

/**
 * The number that an answer is, if it is one: integers, decimals, fractions and percentages, with thousands
 * separators, a currency sign, and at most one word of unit apart behind it.
 */
export function numberIn(answer: string): Rational | undefined {
  const text = tidy(answer)
    .replace(/\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}/g, '$1/$2')
    .replace(/\\text\{([^{}]*)\}/g, '$1')
    .trim();
  const match = NUMBER.exec(text);
  if (!match) return undefined;
  const {
    sign,
    whole = '',
    decimals = '',
    below,
    percent,
  } = match.groups as Record<string, string | undefined>;
  if (whole === '' && decimals === '') return undefined;
  const digits = whole.replaceAll(',', '');
  let numerator = BigInt(`${digits}${decimals}`);
  let denominator = 10n ** BigInt(decimals.length);
  if (below !== undefined) denominator *= BigInt(below.replaceAll(',', ''));
  if (percent !== undefined) denominator *= 100n;
  if (denominator === 0n) return undefined;
  if (sign === '-') numerator = -numerator;
  const divisor = gcd(numerator < 0n ? -numerator : numerator, denominator);
  return { numerator: numerator / divisor, denominator: denominator / divisor };
}

const NUMBER =
  /^(?<sign>[-+])?\$?(?<whole>\d{1,3}(?:,\d{3})+|\d+)?(?:\.(?<decimals>\d+))?(?:\/(?<below>\d{1,3}(?:,\d{3})+|\d+))?(?:(?<percent>%)|\s+[a-z]{2,})?$/i;

function gcd(a: bigint, b: bigint): bigint {
  return b === 0n ? a : gcd(b, a % b);
}

/** Without the marks that are writing and not meaning: maths dollars, spaces, bold, a full stop at the end. */
function tidy(answer: string): string {
  return answer
    .replace(/\\[,;!]/g, '')
    .replace(/\\([$%])/g, '$1')
    .replace(/^\\\(|\\\)$/g, '')
    .replaceAll('**', '')
    .replace(/^\$(.*)\$$/, '$1')
    .replace(/\.$/, '')
    .replace(/\s+/g, ' ')
    .trim();
}
