const CLOSE = '</think>';

/**
 * What a turn says after its thoughts, for parsers: a call that a model only thinks of is none. `opened` says
 * that the prompt opened the thoughts; otherwise the turn has some if it begins with `<think>`. Thoughts that
 * were never closed (a limit cut the turn) hide everything.
 */
export function afterThoughts(text: string, opened: boolean): string {
  if (!opened && !/^\s*<think>/.test(text)) return text;
  const end = text.indexOf(CLOSE);
  return end < 0 ? '' : text.slice(end + CLOSE.length);
}
