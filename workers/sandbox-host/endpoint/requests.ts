import type { IncomingMessage, ServerResponse } from 'node:http';

/** Bytes of one request's body. */
const MOST_BODY = 4 * 1024 ** 2;

/** Why a call is not taken. */
export interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

/** A body as read, or why it is not taken; `size` of it was counted. */
export type Body = { readonly size: number } & ({ readonly text: string } | { readonly refusal: Refusal });

/** Reads a body up to its bound; `room` is told of each part's size and says if there is room for it. */
export async function readBody(request: IncomingMessage, room: (bytes: number) => boolean): Promise<Body> {
  const parts: Buffer[] = [];
  let size = 0;
  try {
    for await (const part of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      size += part.length;
      const fits = room(part.length);
      if (size > MOST_BODY) {
        const message = `a request has at most ${MOST_BODY} bytes`;
        return { size, refusal: { status: 413, code: 'request_too_large', message } };
      }
      if (!fits) {
        const message = 'too much is waiting for answers';
        return { size, refusal: { status: 429, code: 'rate_limit_exceeded', message } };
      }
      parts.push(part);
    }
  } catch {
    // Its client went away, or was too slow and has been told so: nobody is left to tell.
    request.destroy();
  }
  return { size, text: Buffer.concat(parts).toString('utf8') };
}

/** Answers in the form that OpenAI's clients read, once the rest of the request has come; it is dropped. */
export function refuse(request: IncomingMessage, response: ServerResponse, refusal: Refusal): void {
  const { status, code, message } = refusal;
  const type = status === 429 ? 'rate_limit_error' : 'invalid_request_error';
  const send = (): void => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message, type, param: null, code } }));
  };
  if (request.complete) {
    send();
    return;
  }
  request.once('end', send);
  request.resume();
}
