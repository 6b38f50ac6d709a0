/*
 * The vocabulary of the recorded policy: the bytes, and two special tokens. What text becomes is obvious, and
 * encoding piece by piece gives what encoding the whole does.
 */

export const START = 256;
export const END = 257;
export const VOCABULARY_SIZE = 258;
export const START_TEXT = '<|im_start|>';
export const END_TEXT = '<|im_end|>';

/** The chat format of ChatML, in which results of tools have a role of their own. */
export const CHAT_TEMPLATE =
  `{% for message in messages %}${START_TEXT}{{ message['role'] }}\n{{ message['content'] }}${END_TEXT}\n{% endfor %}` +
  `{% if add_generation_prompt %}${START_TEXT}assistant\n{% endif %}`;

/** Begins every answer of the model. */
export const ASSISTANT: readonly number[] = [START, ...Buffer.from('assistant\n')];

/** The ids of a text; `parseSpecial`: special tokens written in it are such. */
export function encode(text: string, parseSpecial = false): number[] {
  if (!parseSpecial) return [...Buffer.from(text)];
  return text.split(/(<\|im_start\|>|<\|im_end\|>)/).flatMap((part) => {
    if (part === START_TEXT) return [START];
    return part === END_TEXT ? [END] : [...Buffer.from(part)];
  });
}

/** The text of ids, special tokens written out. */
export function decode(ids: readonly number[]): string {
  let text = '';
  let bytes: number[] = [];
  const flush = () => {
    text += Buffer.from(bytes).toString();
    bytes = [];
  };
  for (const id of ids) {
    if (id < START) bytes.push(id);
    else {
      flush();
      text += id === START ? START_TEXT : END_TEXT;
    }
  }
  flush();
  return text;
}
