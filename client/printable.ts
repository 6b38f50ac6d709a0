/** Control characters of both sets, C0 and C1. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
export const CONTROL = /[\u0000-\u001f\u007f-\u009f]/g;

/**
 * A text that cannot steer the terminal it is printed on, whoever has written it: models, tools and tasks have their
 * say in ids, failures and conversations. Lines and tabs stay.
 */
export function printable(text: string): string {
  return text
    .replaceAll('\r\n', '\n')
    .replaceAll(CONTROL, (character) => (character === '\n' || character === '\t' ? character : '\uFFFD'));
}

/** JSON in which no string holds a control character as such: JSON itself escapes the first set alone. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value).replaceAll(
    CONTROL,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
