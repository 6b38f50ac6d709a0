import { z } from 'zod';
import { inLatin, multiplied } from './latex.ts';
import type { PythonPrograms } from './python-pools.ts';

const PROGRAM = new URL('./quantities.py', import.meta.url);
const SECONDS = 5;
/** Characters of a unit that can be one. */
const LONGEST_UNIT = 60;

/** A number and its unit, as text; without a unit, that is empty. */
export interface Quantity {
  readonly number: string;
  readonly unit: string;
}

/** How far a quantity may be from the gold one: the larger of the two bounds. */
export interface Tolerance {
  readonly relative: number;
  /** In the gold answer's unit. */
  readonly absolute: number;
}

const NUMBER = String.raw`[-+]?(?:\d{1,3}(?:[, _]\d{3})+(?![\d_])|\d+)?(?:\.\d*)?(?:(?<=\d)\/\d+(?![\d.]))?`;
/** A power of ten that nothing is multiplied by. */
const BARE_POWER = /^((?:.*[=≈])?\s*[-+]?)10\s*\^\s*([-+]?\d+)/s;
const POWER = String.raw`(?:[eE]([-+]?\d+)|\s*(?:\\times|\\cdot|[x×*·])\s*10\s*(?:\^|\*\*)\s*\{?\s*([-+]?\d+)\s*\}?)?`;
const QUANTITY = new RegExp(String.raw`^(?:.*[=≈])?\s*(${NUMBER})${POWER}(?!\d)\s*(.*)$`, 's');
/** A whole number and a fraction: `3\frac{1}{2}`, `3 1/2`. */
const MIXED = /(?<![\d.,^/])(\d+)(?:\s*\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}|\s+(\d+)\/(\d+)(?![\d.]))/g;
const ABOUT = /^\s*(?:about|approximately|approx\.?|around|roughly|circa|ca\.)\s+/i;
/** What a value may be off by, which says nothing of the value. */
const UNCERTAINTY = /^(.*?)\s*(?:±|\\pm|\+\/?-)\s*(?:\d+\.?\d*|\.\d+)\s*(.*)$/s;

/** The quantity that a text is (`9.8 m/s^2`, `3.0 \times 10^{8}\,\text{m/s}`); undefined if it is none. Pure. */
export function quantityIn(text: string): Quantity | undefined {
  const plain = inLatin(text)
    .replace(/[−–]/g, '-')
    .replace(/(?<![\p{L})])\*\*|\*\*(?!-?\d)/gu, '')
    .replace(/\\?\$/g, '')
    .replace(/\\(?:approx|simeq|sim|cong)(?![a-zA-Z])|^\s*~/g, '≈')
    .replace(/\{,\}/g, ',')
    .replace(/\\[,;:!~ ]|~/g, ' ')
    .replace(/\^\s*\{\s*([-+]?\d+)\s*\}/g, '^$1')
    .replace(/\\(?:text|mathrm|mbox|rm)\s*\{\s*([kMGmn])\s*\}\s*(?=\\Omega)/g, ' $1')
    .replace(/\\(?:text|mathrm|mbox|rm|operatorname)\s*\{([^{}]*)\}/g, ' $1 ')
    .replace(/\\[dt]?frac\s*(\d)\s*(\d)(?!\d)/g, '\\frac{$1}{$2}')
    .replace(MIXED, (_, whole: string, a: string, b: string, c: string, d: string) =>
      String(Number(whole) + Number(a ?? c) / Number(b ?? d)),
    )
    .replace(/\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}/g, (_, over: string, under: string) =>
      /^\d+$/.test(over + under) ? `${over}/${under}` : `(${over})/(${under})`,
    )
    .replace(BARE_POWER, '$11e$2')
    .replace(/\.$/, '')
    .replace(ABOUT, '');
  const [, digits = '', short, long, rest = ''] = QUANTITY.exec(multiplied(certain(plain)).trim()) ?? [];
  if (!/\d/.test(digits)) return undefined;
  const exponent = short ?? long;
  const unit = unitIn(rest);
  if (unit === undefined) return undefined;
  const [over, under] = digits.replace(/[, _]/g, '').split('/');
  const number = under === undefined ? `${over}` : String(Number(over) / Number(under));
  return { number: number + (exponent === undefined || under !== undefined ? '' : `e${exponent}`), unit };
}

/** Without its uncertainty: `(3.0 ± 0.1) m`, `3.0 m ± 0.1 m`, `3.0(1) m`. */
function certain(text: string): string {
  const [, before, after = ''] = UNCERTAINTY.exec(text) ?? [];
  if (before === undefined) return text.replace(/(\d)\(\d+\)/, '$1');
  if (after.startsWith(')')) return before.replace(/\(\s*(?=[^(]*$)/, '') + after.slice(1);
  return /[\d.]$/.test(before) ? `${before} ${after}` : before;
}

function unitIn(text: string): string | undefined {
  const unit = text
    .replace(/\[([^[\]]*)\]/g, ' $1 ')
    .replace(/\^?\s*\{?\s*\\(?:circ|degree)(?![a-zA-Z])\s*\}?/g, ' degree ')
    .replace(/\bdegrees?\s+(?:(c|celsius)|(f|fahrenheit))\b/gi, (_, c) => (c ? 'degC' : 'degF'))
    .replace(/\\?%|\bper cent\b/g, 'percent')
    .replace(/\\mu(?![a-zA-Z])\s*/g, 'µ')
    .replace(/\\Omega(?![a-zA-Z])/g, 'ohm')
    .replace(/\\AA(?![a-zA-Z])/g, 'angstrom')
    .replace(/[·⋅×]|\\(?:cdot|times)(?![a-zA-Z])|(?<=\p{L})-(?=\p{L})/gu, '*')
    .trim();
  // What is not made of letters, powers and their signs is no unit, and some of it is work for the parser.
  return unit.length <= LONGEST_UNIT && /^(?:[\p{L}µ_/*()\s]|\^\s*-?\d{1,2}|\*\*-?\d{1,2})*$/u.test(unit)
    ? unit
    : undefined;
}

/**
 * Whether a quantity is the gold one within a tolerance, whatever unit it is in.
 * @throws RolloutError GraderFailed if the gold one has no known unit
 */
export async function sameQuantity(
  python: PythonPrograms,
  { gold, given, relative, absolute }: { readonly gold: Quantity; readonly given: Quantity } & Tolerance,
  signal?: AbortSignal,
): Promise<boolean> {
  const request = { op: 'same', gold, given, relative, absolute };
  return z.boolean().parse(await python.ask(PROGRAM, request, options(signal)));
}

/** What a quantity is read as; null if its unit is not known. @throws RolloutError GraderFailed */
export async function readQuantity(
  python: PythonPrograms,
  quantity: Quantity,
  signal?: AbortSignal,
): Promise<string | null> {
  return z
    .string()
    .nullable()
    .parse(await python.ask(PROGRAM, { op: 'read', quantity }, options(signal)));
}

function options(signal: AbortSignal | undefined) {
  return { seconds: SECONDS, ...(signal && { signal }) };
}
