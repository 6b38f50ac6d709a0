import type { FinishReason } from '../../contracts/llm.ts';
import type { TokenCollector } from './collector.ts';
import { type LlmHttp, refuse } from './http.ts';
import { ErrorEvent } from './wire.ts';

/** One request whose answer is a stream of events. */
export interface StreamRequest {
  readonly http: LlmHttp;
  readonly path: string;
  readonly body: unknown;
  readonly signal: AbortSignal;
  readonly collector: TokenCollector;
  /** Takes the tokens of an event; returns how the turn ended once it has. */
  take(event: unknown): FinishReason | undefined;
  /** Tells the server of an abort where closing the connection is not enough; its failure changes nothing. */
  tellAbort?(): Promise<unknown>;
}

/** Follows a stream to its end, or until the signal aborts: closing the connection ends the server's work. */
export async function followStream(request: StreamRequest): Promise<FinishReason> {
  const { http, path, body, signal, collector } = request;
  try {
    for await (const event of http.events(path, body, signal)) {
      const failed = hasError(event) ? ErrorEvent.safeParse(event).data : undefined;
      if (failed) refuse(`${http.url}${path}`, failed.error.code, failed.error.message);
      const finish = request.take(event);
      if (finish) return finish;
    }
  } catch (error) {
    if (!signal.aborted) throw error;
    await request.tellAbort?.().catch(() => undefined);
    return 'abort';
  }
  throw collector.cut();
}

/** Few events have one, and each token is an event. */
function hasError(event: unknown): boolean {
  return typeof event === 'object' && event !== null && 'error' in event;
}
