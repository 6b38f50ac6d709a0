/** A fenced block of Markdown. */
export interface Block {
  /** The word behind the opening fence, in small letters; empty if there is none. */
  readonly language: string;
  /** Its lines, each with its end. */
  readonly content: string;
}

const OPENING = /^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`]*$/;

/** The blocks of a reply that are closed, in order. One pass over its lines: a reply may be long and hostile. Pure. */
export function blocksIn(reply: string): Block[] {
  const blocks: Block[] = [];
  let open: { fence: string; language: string; lines: string[] } | undefined;
  for (const line of reply.split(/\r?\n/)) {
    if (open && line.trim() === open.fence) {
      blocks.push({ language: open.language, content: open.lines.map((one) => `${one}\n`).join('') });
      open = undefined;
    } else if (open) {
      open.lines.push(line);
    } else {
      const [, fence, language = ''] = OPENING.exec(line) ?? [];
      if (fence !== undefined) open = { fence, language: language.toLowerCase(), lines: [] };
    }
  }
  return blocks;
}
