/**
 * A step that could not be done. Its text names what was tried, each with its error, and what the person
 * can do about it.
 */
export class SetupFailure extends Error {
  /**
   * @param {string} message what is missing, in one line
   * @param {{ attempts?: { what: string, error: string }[], advice?: string[] }} [details]
   */
  constructor(message, { attempts = [], advice = [] } = {}) {
    super(message);
    this.name = 'SetupFailure';
    this.attempts = attempts;
    this.advice = advice;
  }

  /** The whole report, several lines. */
  explain() {
    const lines = [this.message];
    if (this.attempts.length > 0) {
      lines.push('', 'Tried:');
      this.attempts.forEach(({ what, error }, index) => {
        lines.push(`  ${index + 1}. ${what}`, ...indent(error, '     '));
      });
    }
    if (this.advice.length > 0) {
      lines.push('', 'What you can do:', ...this.advice.flatMap((text) => `  - ${text}`));
    }
    return lines.join('\n');
  }
}

/**
 * The text to show for any error: a set-up failure's report, the message of an error of the system or of a
 * command, and the stack of what nobody expected.
 */
export function explain(error) {
  if (error instanceof SetupFailure) return error.explain();
  if (!(error instanceof Error)) return String(error);
  return 'code' in error ? error.message : (error.stack ?? error.message);
}

function indent(text, by) {
  return text.split('\n').map((line) => by + line);
}
