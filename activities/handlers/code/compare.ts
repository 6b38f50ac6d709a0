/** Largest difference, absolute or relative, of numbers that are given as decimals. */
const TOLERANCE = 1e-6;
const WHOLE = /^[-+]?\d+$/;
const DECIMAL = /^[-+]?(?:\d+\.\d*|\.\d+|\d+(?=e))(?:e[-+]?\d+)?$/i;
const NUMBER = /^[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?$/i;

/**
 * Whether what a program printed is what was expected: the same words in the same order, however they are spaced. In a
 * problem whose expected output has decimals, numbers may differ by 10⁻⁶, absolute or relative; whole ones, of which such
 * an output may have some as well, only if one of them is written as a decimal. Pure.
 */
export function sameOutput(given: string, expected: string): boolean {
  if (given.trimEnd() === expected.trimEnd()) return true;
  const [a, b] = [given, expected].map((text) => text.split(/\s+/).filter((word) => word !== '')) as [
    string[],
    string[],
  ];
  if (a.length !== b.length) return false;
  const decimals = b.some((word) => DECIMAL.test(word));
  return b.every((word, index) => {
    const own = a[index] as string;
    return own === word || (decimals && close(own, word));
  });
}

function close(a: string, b: string): boolean {
  if (!NUMBER.test(a) || !NUMBER.test(b) || (WHOLE.test(a) && WHOLE.test(b))) return false;
  const [x, y] = [Number(a), Number(b)];
  return Math.abs(x - y) <= TOLERANCE * Math.max(1, Math.abs(y));
}
