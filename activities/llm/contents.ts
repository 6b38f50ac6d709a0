/** What templates do to a content without harm: nothing, trimming, or writing it as a JSON string. */
const ALTERATIONS: readonly ((content: string) => string)[] = [
  (content) => content,
  (content) => content.trim(),
  (content) => content.trimStart(),
  (content) => content.trimEnd(),
  (content) => content.replace(/^\n+/, ''),
  (content) => content.replace(/^\n+|\n+$/g, ''),
  // The quotes are the template's words.
  (content) => JSON.stringify(content).slice(1, -1),
];

/**
 * The contents as they stand in `whole`, which must be the template's words with one content between each two
 * of them, every content as it was given or altered in one of the harmless ways. Undefined if it is not.
 */
export function fitContents(
  words: readonly string[],
  contents: readonly string[],
  whole: string,
): string[] | undefined {
  const [first = ''] = words;
  if (!whole.startsWith(first)) return undefined;
  return fitFrom(0, first.length);

  /** The contents from number `at` on, given that what is before them ends at `position`. */
  function fitFrom(at: number, position: number): string[] | undefined {
    const content = contents[at];
    if (content === undefined) return position === whole.length ? [] : undefined;
    const next = words[at + 1] ?? '';
    for (const candidate of new Set(ALTERATIONS.map((alter) => alter(content)))) {
      const end = position + candidate.length;
      if (!whole.startsWith(candidate, position) || !whole.startsWith(next, end)) continue;
      const rest = fitFrom(at + 1, end + next.length);
      if (rest) return [candidate, ...rest];
    }
    return undefined;
  }
}
