/** Functions and constants that people write without their backslash. */
const NAMES = /(?<![\\\p{L}])(sqrt|pi|infinity|sin|cos|tan|log|ln|exp|theta|alpha|beta)(?![\p{L}])/gu;
/** Units of two letters and less; longer words after a number are taken for a unit as well. */
const SHORT_UNIT = '(?:cm|mm|km|kg|mg|ml|mL|ft|in|mi|lb|oz|hr|yd|am|pm|Hz|ms|sq|[mgsh])';

const NUMBER = String.raw`[-+]?\$?\d[\d,.]*(?:/\d+)?`;
const UNIT = String.raw`(?:\p{L}{3,}|per|of|${SHORT_UNIT})(?:/\p{L}+)?(?:\^?[23²³])?\.?`;
// With spaces between units: letters that could be split in any way would take for ever.
const WITH_UNIT = new RegExp(String.raw`^(${NUMBER})\s+(${UNIT}(?:\s+${UNIT})*)$`, 'u');
const WORDS = /^\p{L}[\p{L}'’-]{2,}(?:[ ,]+[\p{L}'’-]+)*$/u;

/** What only says how to print, and a currency's sign. */
const LOOKS =
  /\\(?:(?:text)?color\s*\{\w+\}|(?:boldsymbol|bm|bf|underline|emph|large|Large|LARGE|huge|Huge|checkmark)(?![a-zA-Z]))|\\text\s*\{\\\$\}|[€£¥]/g;
/** Signs that LaTeX has a word for. */
const SIGNS: Readonly<Record<string, string>> = {
  '∞': '\\infty ',
  '·': '\\cdot ',
  '°': '^\\circ ',
  '⁄': '/',
  '℃': '^\\circ C',
};
const FRACTIONS = '½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞';
const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶⁷⁸⁹';
/** Words that multiply the number before them, by powers of ten. */
const POWERS: Readonly<Record<string, number>> = {
  hundred: 2,
  thousand: 3,
  million: 6,
  billion: 9,
  trillion: 12,
};
const MULTIPLIED = new RegExp(
  String.raw`(?<![\d.,])(\d+(?:,\d{3})*(?:\.\d+)?)(\s*\\(?:text|mbox|mathrm)\s*\{)?\s*(${Object.keys(POWERS).join('|')})\b`,
  'g',
);

/**
 * An answer as LaTeX that means what a person means who writes it: without the marks of Markdown and of the end
 * of a sentence, and with words as text, which Math-Verify would take for a product of variables. Only the
 * writing: what is equal to what, it alone says. Pure.
 */
export function asLatex(answer: string): string {
  let text = inLatin(answer).replaceAll('**', '').replace(/[−–]/g, '-').replace(LOOKS, '');
  text = text.replace(/(?:\\\\|\\[,;! ]|[,~\s])+$/, '').trim();
  text = text.replace(/^(?:\\approx|≈)\s*/, '');
  text = unwrapped(text)
    .replace(/(?<=[\d\p{L})}\]%$])\.$/u, '')
    .replace(/^`(.*)`$/, '$1')
    .trim();
  // One that is left would end the formula that Math-Verify is given: it would read what follows as the answer.
  text = unwrapped(text).replace(/(?<!\\)\$/g, '');
  text = text.replace(/(?<![\d.,])\d{1,3}(?:(?: |\\[,;: ])\d{3})+(?![\d,])/g, (digits) =>
    digits.replace(/\D/g, ''),
  );
  text = multiplied(text);
  text = text.replace(/(?<![\d.^_{}\\\p{L}])(\d+)[ -](\d+)\/(\d+)(?!\d)/gu, '$1\\frac{$2}{$3}');
  text = text.replace(/(?<![\\\p{L}])sqrt\s*\(([^()]*)\)/gu, '\\sqrt{$1}');
  text = text.replace(/^([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d+)$/, '$1 \\times 10^{$2}');
  const unit = WITH_UNIT.exec(text);
  if (unit && !/^(?:percent|pct|percentage)/i.test(unit[2] ?? '')) return `${unit[1]} \\text{ ${unit[2]}}`;
  const named = text.replace(NAMES, (name) => (name === 'infinity' ? '\\infty' : `\\${name}`));
  return WORDS.test(text) && named === text && !/\b(?:and|or)\b/.test(text) ? `\\text{${text}}` : named;
}

/** `2 million` as the number that it is. Pure. */
export function multiplied(text: string): string {
  return text.replace(MULTIPLIED, (_, digits: string, opening: string | undefined, word: string) => {
    return `${Number(`${digits.replaceAll(',', '')}e${POWERS[word]}`)}${opening ?? ''}`;
  });
}

/** Digits, spaces, powers, fractions and roots that Unicode has signs of its own for, as LaTeX has them. Pure. */
export function inLatin(text: string): string {
  return text
    .replace(/[\u00a0\u2000-\u200a\u202f~]/g, ' ')
    .replace(/[\uff01-\uff5e]/g, (wide) => String.fromCodePoint((wide.codePointAt(0) ?? 0) - 0xfee0))
    .replace(new RegExp(`[⁻⁺]?[${SUPERSCRIPTS}]+`, 'g'), (digits) => {
      const plain = digits.normalize('NFKC').replace('−', '-');
      return plain.length === 1 ? `^${plain}` : `^{${plain}}`;
    })
    .replace(new RegExp(`[${FRACTIONS}]`, 'g'), (sign) => {
      const [over, under] = sign.normalize('NFKC').split('⁄');
      return `\\frac{${over}}{${under}}`;
    })
    .replace(/√\s*(?:\(([^()]*)\)|(\d+|\p{L}))/gu, (_, inner, plain) => `\\sqrt{${inner ?? plain}}`)
    .replace(/[∞·°⁄℃]/g, (sign) => SIGNS[sign] as string)
    .trim();
}

/** Without the dollars or brackets that only say that mathematics follows. */
function unwrapped(text: string): string {
  const inner = /^\$\$?([^$]+)\$\$?$|^\\\((.*)\\\)$|^\\\[(.*)\\\]$/s.exec(text);
  return (inner?.[1] ?? inner?.[2] ?? inner?.[3] ?? text).trim();
}
