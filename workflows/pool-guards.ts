import type { PoolUpdate } from '../contracts/pool.ts';

type Fields = Record<string, unknown>;
type Guard = (value: unknown) => boolean;

/*
 * Guards of the payloads of a pool's updates, as small as a workflow needs them; contracts/pool-commands.ts has the
 * schemas, with which clients fill in what was left out.
 */

const isVersion: Guard = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const isAddress: Guard = (value) => typeof value === 'string' && /^https?:\/\/[^/]+(\/.*[^/])?$/.test(value);
const isLabel: Guard = (value) =>
  typeof value === 'string' && /^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$/.test(value);
const isSeconds: Guard = (value) => typeof value === 'number' && value >= 0 && value <= 86_400;
const isText: Guard = (value) => typeof value === 'string' && value !== '';
const listOf =
  (guard: Guard): Guard =>
  (value) =>
    Array.isArray(value) && value.length > 0 && value.every(guard);

const DIALECTS: readonly unknown[] = ['llama.cpp', 'vllm', 'sglang', 'tensorrt-llm', 'prorl'];
const isServer: Guard = (value) => {
  const { url, dialect, policyVersion } = fieldsOf(value);
  return isAddress(url) && DIALECTS.includes(dialect) && isVersion(policyVersion);
};

const SWAP: Record<string, Guard> = { version: isVersion, label: isLabel, drainSeconds: isSeconds };
const IN_PLACE = ['drain', 'abort', 'inFlight'];

const FIELDS: Record<PoolUpdate, (payload: Fields) => Record<string, Guard>> = {
  add: () => ({ server: isServer, labels: listOf(isLabel), seeded: (value) => typeof value === 'boolean' }),
  remove: () => ({ url: isAddress }),
  drain: () => ({ url: isAddress, drainSeconds: isSeconds }),
  label: () => ({ url: isAddress, labels: listOf(isLabel) }),
  swap: ({ mode }) => ({
    mode: (value) => value === 'blueGreen' || IN_PLACE.includes(value as string),
    ...SWAP,
    ...(mode === 'blueGreen' ? { servers: listOf(isServer) } : { folder: isText }),
  }),
  floor: () => ({ version: isVersion }),
};

/** What is wrong with the payload of an update, by the name of its field; null if nothing is. */
export function poolProblem(update: PoolUpdate, payload: unknown): string | null {
  const fields = fieldsOf(payload);
  const wrong = Object.entries(FIELDS[update](fields)).filter(([name, guard]) => !guard(fields[name]));
  return wrong.length === 0
    ? null
    : `${wrong.map(([name]) => name).join(', ')}: not what contracts/pool-commands.ts says`;
}

function fieldsOf(payload: unknown): Fields {
  return typeof payload === 'object' && payload !== null ? (payload as Fields) : {};
}
