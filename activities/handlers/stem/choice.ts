const LETTER = /^\(?([A-Z])\)?(?:[.:)](?:\s|$)|$)/;
/** Another letter beside the first: who names two has chosen none. */
const ANOTHER = /^(?:or|and|,|;|\/|&)\s*\(?[A-Z]\)?(?:[.:),;]|\s|$)|^\(?[A-Z]\)[.:,;]?(?:\s|$)/;

/**
 * Which choice an answer names: by its letter (`C`, `(C)`, `C. text`), or by all of its text. Undefined if none, or more
 * than one. Pure.
 */
export function choiceIn(answer: string, choices: readonly string[]): number | undefined {
  const plain = tidy(answer);
  const [named = '', letter] = LETTER.exec(plain) ?? [];
  if (letter !== undefined && ANOTHER.test(plain.slice(named.length).trimStart())) return undefined;
  if (letter !== undefined) {
    const index = letter.charCodeAt(0) - 'A'.charCodeAt(0);
    if (index < choices.length) return index;
  }
  const same = choices.flatMap((choice, index) =>
    tidy(choice).toLowerCase() === plain.toLowerCase() ? [index] : [],
  );
  return same.length === 1 ? same[0] : undefined;
}

function tidy(text: string): string {
  return text
    .replace(/\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}/g, '$1')
    .replaceAll('**', '')
    .replace(/^\$(.*)\$$/, '$1')
    .replace(/(?<=.)\.$/, '')
    .replace(/\s+/g, ' ')
    .trim();
}
