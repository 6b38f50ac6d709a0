import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { SetupFailure } from './failure.mjs';

/** Longest wait for the first byte of an answer, name look-up and connection included. */
const ANSWER_MS = 6_000;
/** Longest silence in the middle of a body. */
const STALL_MS = 20_000;

/**
 * Downloads a file.
 * @param {string} url
 * @param {string} file
 * @param {{ answerMs?: number, stallMs?: number, onProgress?: (text: string) => void }} [options]
 * @returns {Promise<string>} its SHA-256 in hexadecimal
 */
export async function download(url, file, { answerMs = ANSWER_MS, stallMs = STALL_MS, onProgress } = {}) {
  return withDeadline(url, answerMs, async (response, alive) => {
    const total = Number(response.headers.get('content-length') ?? 0);
    const hash = createHash('sha256');
    let bytes = 0;
    const meter = new Transform({
      transform(chunk, _encoding, done) {
        alive(stallMs);
        hash.update(chunk);
        bytes += chunk.length;
        onProgress?.(`${megabytes(bytes)}${total > 0 ? ` of ${megabytes(total)}` : ''} MB`);
        done(null, chunk);
      },
    });
    await pipeline(Readable.fromWeb(response.body), meter, createWriteStream(file));
    return hash.digest('hex');
  });
}

/** Downloads a short text. */
export function downloadText(url, { answerMs = ANSWER_MS, stallMs = STALL_MS } = {}) {
  return withDeadline(url, answerMs, (response, alive) => {
    alive(stallMs);
    return response.text();
  });
}

/**
 * Node's fetch has no limits of its own short enough to fall back quickly: `use` gets a function that
 * grants the next piece so many milliseconds.
 */
async function withDeadline(url, answerMs, use) {
  const controller = new AbortController();
  let timer;
  const alive = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(new SetupFailure(`no data for ${ms / 1000} s`)), ms);
  };
  try {
    alive(answerMs);
    const response = await fetch(url, { signal: controller.signal, redirect: 'follow' });
    if (!response.ok) throw new SetupFailure(`answered ${response.status} ${response.statusText}`.trim());
    return await use(response, alive);
  } catch (error) {
    throw new SetupFailure(`${url}: ${reason(error)}`);
  } finally {
    clearTimeout(timer);
    controller.abort();
  }
}

/** fetch says only "fetch failed": the cause has the reason. */
function reason(error) {
  const cause = error.cause;
  if (!(cause instanceof Error)) return error.message;
  return `${error.message} (${[cause.code, cause.message].filter(Boolean).join(': ')})`;
}

function megabytes(bytes) {
  return (bytes / 1e6).toFixed(1);
}
