/*
 * The gateway's API. Where it wants a bearer token, the page asks for one and keeps it for this tab.
 */

const KEY = 'rollouts.token';
const HOW_LONG_UNTIL_AGAIN_MS = 3_000;

/** An answer that says what is wrong. `status` is 0 if there was none. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** Undefined forgets it. */
export function keepToken(token) {
  if (token === undefined) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, token);
}

async function call(place, { headers = {}, ...init }) {
  const token = sessionStorage.getItem(KEY);
  const authorization = token === null ? {} : { Authorization: `Bearer ${token}` };
  let response;
  try {
    response = await fetch(place, { ...init, headers: { ...headers, ...authorization } });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, 'the gateway does not answer');
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401) dispatchEvent(new CustomEvent('token-needed'));
  throw new Problem(response.status, problem.detail ?? `${response.status} ${response.statusText}`);
}

/** JSON of a GET. Parts of `query` that are empty are left out. */
export async function get(place, { query = {}, signal } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const asked = given.length > 0 ? `?${new URLSearchParams(given)}` : '';
  return (await call(`${place}${asked}`, { signal, headers: { Accept: 'application/json' } })).json();
}

/** What is not there is null. */
export const orNull = (asking) =>
  asking.catch((problem) => {
    if (problem instanceof Problem && problem.status === 404) return null;
    throw problem;
  });

/** JSON of a POST. */
export async function post(place, body) {
  const headers = { 'Content-Type': 'application/json' };
  return (await call(place, { method: 'POST', headers, body: JSON.stringify(body) })).json();
}

/**
 * Server-sent events until the stream ends by itself with `last`; goes on after the last one when it is cut. The
 * browser's own EventSource sends no bearer tokens.
 */
export async function* events(place, { last, signal }) {
  for (let after = 0; !signal.aborted; ) {
    try {
      const headers = after === 0 ? {} : { 'Last-Event-ID': String(after) };
      const response = await call(place, { signal, headers });
      for await (const event of parsed(response.body)) {
        after = Number(event.id);
        yield event;
        if (event.kind === last) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status >= 400 && error.status < 500) throw error;
    }
    await pause(HOW_LONG_UNTIL_AGAIN_MS, signal);
  }
}

/** Events of a stream: blocks of lines with a blank one after each; comments are none. */
async function* parsed(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split('\n\n');
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split('\n').map((line) => line.split(/: (.*)/s)));
      if (fields.event) yield { id: fields.id, kind: fields.event, ...JSON.parse(fields.data) };
    }
  }
}

/** Resolves after so many milliseconds, or when the signal is aborted. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
