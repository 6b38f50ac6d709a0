import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import type { RuntimeOptions } from '@temporalio/worker';

/** Milliseconds that the SDK has to answer. */
const ASK_MS = 2000;

/** The Temporal SDK's own metrics: which options its runtime is installed with, and how they are read. */
export interface SdkMetrics {
  readonly telemetryOptions: NonNullable<RuntimeOptions['telemetryOptions']>;
  /** In Prometheus' text format; empty before there is a worker, and when the last has ended. */
  text(): Promise<string>;
}

/**
 * The SDK's core serves its metrics at a TCP address of its own alone, so it gets one on the loopback, that is read
 * from. The port was free a moment ago: another process may take it, and installing the runtime throws then.
 */
export async function sdkMetrics(): Promise<SdkMetrics> {
  const address = `127.0.0.1:${await freePort()}`;
  return {
    telemetryOptions: {
      metrics: {
        prometheus: {
          ...{ bindAddress: address, countersTotalSuffix: true },
          ...{ unitSuffix: true, useSecondsForDurations: true },
        },
        attachServiceName: false,
      },
    },
    text: async () => {
      try {
        // At each scrape, for the whole life of the process: `fetch` takes eight times the processor time.
        const asked = http.get(`http://${address}/metrics`, { signal: AbortSignal.timeout(ASK_MS) });
        const [answer] = await once(asked, 'response');
        return await text(answer);
      } catch {
        return ''; // without a worker there is nothing that serves them
      }
    },
  };
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
