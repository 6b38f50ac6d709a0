import { z } from 'zod';
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

const NUMBER = String.raw`[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:(?<=\d)\/\d+(?![\d.]))?`;
/** A power of ten that nothing is multiplied by. */
const BARE_POWER = /^((?:[^=≈]*[=≈])?\s*[-+]?)10\s*\^\s*([-+]?\d+)/;
const POWER = String.raw`(?:[eE]([-+]?\d+)|\s*(?:\\times|\\cdot|[x×*·])\s*10\s*(?:\^|\*\*)\s*\{?\s*([-+]?\d+)\s*\}?)?`;
const QUANTITY = new RegExp(String.raw`^(?:[^=≈]*[=≈])?\s*(${NUMBER})${POWER}(?!\d)\s*(.*)$`, 's');

/** The quantity that a text is (`9.8 m/s^2`, `3.0 \times 10^{8}\,\text{m/s}`); undefined if it is none. Pure. */
export function quantityIn(text: string): Quantity | undefined {
  const plain = text
    .trim()
    .replaceAll('−', '-')
    .replaceAll('**', '')
    .replace(/^\$+|\$+$/g, '')
    .replace(/\\[,;:!~ ]|~/g, ' ')
    .replace(/\^\s*\{\s*([-+]?\d+)\s*\}/g, '^$1')
    .replace(/\\(?:text|mathrm|mbox|rm|operatorname)\s*\{([^{}]*)\}/g, ' $1 ')
    .replace(/\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}/g, (_, over: string, under: string) =>
      /^\d+$/.test(over + under) ? `${over}/${under}` : `(${over})/(${under})`,
    )
    .replace(BARE_POWER, '$11e$2')
    .replace(/\.$/, '')
    .trim();
  const [, digits = '', short, long, rest = ''] = QUANTITY.exec(plain) ?? [];
  if (!/\d/.test(digits)) return undefined;
  const exponent = short ?? long;
  const unit = unitIn(rest);
  if (unit === undefined) return undefined;
  const [over, under] = digits.replaceAll(',', '').split('/');
  const number = under === undefined ? `${over}` : String(Number(over) / Number(under));
  return { number: number + (exponent === undefined || under !== undefined ? '' : `e${exponent}`), unit };
}

function unitIn(text: string): string | undefined {
  const unit = text
    .replace(/\\(?:circ|degree)|°\s*(?![CFK])/g, 'degree')
    .replace(/\^?degree\s*([CF])\b|°\s*([CF])\b/g, (_, a, b) => `deg${a ?? b}`)
    .replace(/\\?%/g, 'percent')
    .replace(/\\mu\b/g, 'µ')
    .replace(/\\Omega\b/g, 'ohm')
    .replace(/[·⋅]|\\cdot/g, '*')
    .replaceAll('²', '^2')
    .replaceAll('³', '^3')
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
