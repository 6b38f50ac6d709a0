import type { TemporalConnection } from '../config/temporal-connection.ts';
import { messageOf } from '../contracts/failures.ts';

/** What an attempt to connect has thrown, as a person can act on it: where it went, how, and what decides that. */
export function unreachable(error: unknown, { connectionOptions }: TemporalConnection): Error {
  const { address, tls, apiKey } = connectionOptions;
  const secured = tls !== undefined && tls !== false;
  const certificate = typeof tls === 'object' && tls?.clientCertPair !== undefined;
  const how = secured
    ? `with TLS, ${certificate ? 'with' : 'without'} a client certificate${apiKey === undefined ? '' : ', with an API key'}`
    : 'without TLS';
  return new Error(
    `no Temporal server answers at ${address} ${how}: ${reasonOf(error)}. Start the stack with "npm start", or set ` +
      'temporal.address; TLS, certificates and API keys come from the profile in temporal.toml or TEMPORAL_TLS_* and ' +
      'TEMPORAL_API_KEY',
    { cause: error },
  );
}

/** The innermost message is the one that names the certificate. */
function reasonOf(error: unknown): string {
  let inner = error;
  while (inner instanceof Error && inner.cause !== undefined) inner = inner.cause;
  const [outer, cause] = [messageOf(error), messageOf(inner)];
  return outer.includes(cause) ? outer : `${outer}: ${cause}`;
}
