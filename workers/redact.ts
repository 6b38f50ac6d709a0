import { stdSerializers } from 'pino';

/** What stands for what is not to be read. */
export const REDACTED = '[redacted]';

/** Names whose values are secrets. */
const SECRET =
  /^(proxy-)?authorization$|^(set-)?cookie$|^(x-)?api[-_]?key$|token$|secret$|password$|passphrase$|credentials?$|private[-_]?key$/i;
/** Names whose values give a task's answer away, to whoever reads logs and trains or is trained. */
const ANSWER = /^(answers?|solutions?|expected|reference|tests?|outcome)$/i;
/** Failures whose messages are a grader's or handler's own words, which may quote the answer; the record has them. */
const TELLING = new Set(['GraderFailed', 'HandlerFailed', 'InvalidTask']);
/** Nothing of use to a reader lies deeper. */
const DEEPEST = 8;

/**
 * A value without secrets and answers, of which nothing remains, and of tasks only whose they are. What it is given
 * stays as it is.
 */
export function redacted(value: unknown, depth = 0): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (depth > DEEPEST) return '[deeper]';
  if (Array.isArray(value)) return value.map((each) => redacted(each, depth + 1));
  // Errors have a serializer of their own, dates and the like say what they are themselves.
  if (!isPlain(value)) return value;
  const telling = 'type' in value && TELLING.has(String(value.type));
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [
      name,
      telling && name === 'message' ? REDACTED : redactedField(name, each, depth),
    ]),
  );
}

/** An error as a plain object, without secrets and answers; the SDK's core says its errors in text. */
export function redactedError(error: unknown): unknown {
  if (!(error instanceof Error)) return redacted(error);
  const { stack, ...fields } = stdSerializers.err(error);
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    const { type } = cause as { readonly type?: unknown };
    if (!TELLING.has(String(type))) continue;
    const frames = stack.split('\n').filter((line) => /^ +at /.test(line));
    // Nor its other fields, which may say the same in parts.
    return { type: fields.type, failure: type, message: REDACTED, stack: frames.join('\n') };
  }
  return redacted({ ...fields, stack });
}

function redactedField(name: string, value: unknown, depth: number): unknown {
  if (SECRET.test(name) || ANSWER.test(name)) return value === undefined ? undefined : REDACTED;
  if (name === 'task' && typeof value === 'object' && value !== null && 'handler' in value) {
    const { handler, id } = value as { readonly handler: unknown; readonly id?: unknown };
    return { handler, id };
  }
  return redacted(value, depth + 1);
}

/** A line without tokens that stand in its text: of a header that somebody quotes, or of an address. */
export function redactedText(line: string): string {
  return line
    .replace(/\b(Bearer|Basic)\s+[A-Za-z0-9._~+/-]+=*/gi, `$1 ${REDACTED}`)
    .replace(/(\w+:\/\/)[^\s/@:"\\]+:[^\s/@"\\]+@/g, `$1${REDACTED}@`)
    .replace(/([?&][\w-]*(?:key|token|secret|password|signature)=)[^&\s"\\]+/gi, `$1${REDACTED}`);
}

function isPlain(value: object): boolean {
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
