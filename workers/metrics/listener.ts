import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { messageOf } from '../../contracts/failures.ts';
import type { Metrics } from './metrics.ts';

/** Milliseconds after which a port that was taken (by the process whose place this one takes) is tried again. */
const AGAIN_MS = 5000;

export interface ListenerOptions {
  readonly address: string;
  readonly port: number;
  readonly metrics: Metrics;
  /** More in the same format. */
  readonly more: () => Promise<string>;
  readonly log: Logger;
  readonly againMs?: number;
}

/** Serves a process's metrics. A port that is taken keeps nothing else from working: it is waited for. */
export class MetricsListener {
  readonly #options: ListenerOptions;
  readonly #closing = new AbortController();
  readonly #server: Server;
  #listening: Promise<void> = Promise.resolve();

  constructor(options: ListenerOptions) {
    this.#options = options;
    this.#server = createServer((request, response) => {
      const answer = (code: number, type: string, text: string) =>
        response.writeHead(code, { 'content-type': type }).end(text);
      if (request.method !== 'GET' || request.url?.split('?')[0] !== '/metrics')
        return answer(404, 'text/plain', 'GET /metrics\n');
      this.#text().then(
        (text) => answer(200, options.metrics.registry.contentType, text),
        (error) => answer(500, 'text/plain', `${messageOf(error)}\n`),
      );
    });
  }

  start(): void {
    this.#listening = this.#listen();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#listening;
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #text(): Promise<string> {
    const { metrics, more } = this.#options;
    const [own, others] = await Promise.all([metrics.text(), more()]);
    return `${own}\n${others}`;
  }

  async #listen(): Promise<void> {
    const { address, port, log, againMs = AGAIN_MS } = this.#options;
    const { signal } = this.#closing;
    for (let tries = 0; !signal.aborted; tries++) {
      try {
        this.#server.listen(port, address);
        await once(this.#server, 'listening');
        log.info({ address, port }, 'metrics are served');
        return;
      } catch (error) {
        if (tries === 0) log.warn({ address, port, problem: messageOf(error) }, 'metrics are not served yet');
        await delay(againMs, undefined, { signal }).catch(() => {}); // told to stop: the loop ends
      }
    }
  }
}
