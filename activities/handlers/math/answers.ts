/**
 * Which part of a text is its answer. Pure. What the answer is worth, Math-Verify says.
 */

/**
 * The answer that a text states: the content of its last `\boxed{…}` that is closed and not empty, else what follows
 * the last `####`, else what follows the last "answer is" or "answer:" (so also "final answer") up to the end of
 * the sentence, on the next line if nothing else stands on that. Undefined if it states none: a number that merely stands last is not an answer.
 */
export function statedAnswer(text: string): string | undefined {
  return (
    lastBoxed(text) ?? lastMatch(text, /####[ \t]*([^\n]+)/g) ?? sentence(lastMatch(text, ANSWER_PHRASE))
  );
}

/**
 * The answer of an agent: what the last of its messages that states one states, else all of its last message if that
 * is one short line. Of each message, what repeats a text of the prompt does not count, so that a `\boxed{}` there is
 * nobody's answer.
 */
export function agentsAnswer(said: readonly string[], prompt: readonly string[]): string | undefined {
  const repeated = prompt.map((text) => text.trim()).filter((text) => text.includes('\\boxed'));
  const own = said.map((message) => repeated.reduce((rest, text) => rest.replaceAll(text, '\n'), message));
  for (const message of own.toReversed()) {
    const answer = statedAnswer(message);
    if (answer !== undefined) return answer;
  }
  const last = own.at(-1)?.trim() ?? '';
  return last !== '' && last.length <= LONGEST_BARE_ANSWER && !last.includes('\n') ? last : undefined;
}

/** Characters of a message that may be nothing but its answer. */
const LONGEST_BARE_ANSWER = 40;

const ANSWER_PHRASE = new RegExp(
  [
    String.raw`\banswer(?:\*\*)?(?:[ \t]+is\b|[ \t]*:)[ \t]*:?(?:\*\*)?[ \t]*`,
    // On the next line, if that is short and begins no list; a formula may have its signs on lines of their own.
    String.raw`(?:\r?\n\s*(?!\d+[.)][ \t])(?:(?:\$\$|\\\[)[ \t]*\r?\n\s*)?(?=[^\n]{1,${LONGEST_BARE_ANSWER}}$))?`,
    String.raw`(?![:*$[\\ \t\r]*$)([^\n]+)`,
  ].join(''),
  'gim',
);

/** What ends an answer within a sentence: a full stop that is no decimal point, or the reason. */
const END_OF_ANSWER = /[.!?;](?=\s|$)|,?\s(?:because|since|as|so|which|where)\s|,\snot\s/;

function sentence(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const formula = /^\$[^$]+\$|^\\\(.*?\\\)/.exec(text);
  return (formula?.[0] ?? text.split(END_OF_ANSWER)[0])?.trim() || undefined;
}

function lastMatch(text: string, pattern: RegExp): string | undefined {
  const answer = [...text.matchAll(pattern)].at(-1)?.[1]?.slice(0, LONGEST_BOX).trim();
  return answer === '' ? undefined : answer;
}

/** Content of the last `\boxed{…}` (or `\fbox`) that has one and whose braces close; braces inside it count. */
function lastBoxed(text: string): string | undefined {
  for (const box of [...text.matchAll(/\\f?box(?:ed)?\s*\{/g)].toReversed()) {
    const open = box.index + box[0].length;
    const close = closingBrace(text, open);
    const content = text.slice(open, close).trim();
    if (close !== undefined && content !== '') return content;
  }
  return undefined;
}

/** Characters that a box may hold: what is longer is no answer, and many that are never closed would take for ever. */
const LONGEST_BOX = 4000;

/** Where the brace closes that was opened just before `from`; `\{` and `\}` are no braces. */
function closingBrace(text: string, from: number): number | undefined {
  let depth = 1;
  const end = Math.min(text.length, from + LONGEST_BOX);
  for (let index = from; index < end; index++) {
    if (text[index] === '\\') index++;
    else if (text[index] === '{') depth++;
    else if (text[index] === '}' && --depth === 0) return index;
  }
  return undefined;
}
