import type { Served } from './served.ts';

/** Answer of the gateway, read whole. */
export interface Answer {
  readonly status: number;
  readonly type: string | null;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests say what they expect of it
  json(): any;
}

/** What a call says besides its place; `token: null`: none. */
export interface Said {
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  readonly token?: string | null;
}

/** A guarded gateway and those who call it. */
export interface Caller {
  readonly url: string;
  /** Bearer tokens of `trainer` (read, write), `dashboard` (read) and `operator` (admin). */
  readonly tokens: { readonly trainer: string; readonly dashboard: string; readonly operator: string };
  /** As the trainer, unless it is said. */
  call(method: string, place: string, said?: Said): Promise<Answer>;
}

/** Other than the defaults. */
const CONFIGURED = { sampling: { temperature: 0.7, topP: 0.9 }, limits: { maxTurns: 3 } };

/** Starts the gateway at the first call, when the service stands. */
export function callerOf(served: Served): () => Promise<Caller> {
  let caller: Promise<Caller> | undefined;
  return () => {
    caller ??= start(served);
    return caller;
  };
}

async function start(served: Served): Promise<Caller> {
  const tokens = {
    trainer: await served.token('trainer', 'read,write'),
    dashboard: await served.token('dashboard', 'read'),
    operator: await served.token('operator', 'admin'),
  };
  const { url } = await served.gateway({
    ...{ settings: { bodyBytes: 100_000 }, rollout: CONFIGURED, guarded: true },
  });
  return {
    url,
    tokens,
    async call(method, place, { body, headers = {}, token = tokens.trainer } = {}) {
      const response = await fetch(`${url}${place}`, {
        method,
        headers: {
          ...(token === null ? {} : { authorization: `Bearer ${token}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      });
      const text = await response.text();
      return {
        status: response.status,
        type: response.headers.get('content-type'),
        text,
        json: () => JSON.parse(text),
      };
    },
  };
}
