/** Whether two short answers are the same words: whatever case, articles, punctuation and spaces they have. Pure. */
export function sameWords(given: string, gold: string): boolean {
  const words = normal(given);
  return words !== '' && words === normal(gold);
}

function normal(text: string): string {
  return text
    .normalize('NFKC')
    .replace(/\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}/g, '$1')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}+\-−/^_]+/gu, ' ')
    .replace(/\b(?:the|a|an)\b/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}
