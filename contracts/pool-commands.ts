import { z } from 'zod';
import { LlmServer } from './llm.ts';
import { POLICY_LABEL } from './pool.ts';
import { ServerLabel } from './request.ts';

const Labels = z.array(ServerLabel).min(1).max(20);
/** Addresses name servers: without a slash at the end, so that each has one name. */
const Address = z.url({ protocol: /^https?$/ }).transform((url) => url.replace(/\/+$/, ''));
const Server = LlmServer.extend({ url: Address });
const Version = z.int().min(0);
/** Seconds that requests under way may take to end. */
const DrainSeconds = z.number().min(0).max(86_400).default(600);

/** `add`: a server joins, or one that is there already is looked at anew. */
export const AddServer = z.strictObject({
  server: Server,
  labels: Labels.default([POLICY_LABEL]),
  seeded: z.boolean().default(false),
});
export type AddServer = z.infer<typeof AddServer>;

/** `remove`: no request begins there any more; those under way end by themselves. */
export const RemoveServer = z.strictObject({ url: Address });
export type RemoveServer = z.infer<typeof RemoveServer>;

/** `drain`: no request begins there any more; answers when none is under way. */
export const DrainServer = z.strictObject({ url: Address, drainSeconds: DrainSeconds });
export type DrainServer = z.infer<typeof DrainServer>;

/** `label`: the labels that a server has from now on. */
export const LabelServer = z.strictObject({ url: Address, labels: Labels });
export type LabelServer = z.infer<typeof LabelServer>;

/**
 * `swap`: another version of the weights on all servers of a label.
 * - `drain`: requests under way end first, then every server loads the weights.
 * - `abort`: requests under way are broken off and go on, with the tokens that they have, under the new version.
 * - `inFlight`: weights are loaded under the requests, where the server tells the version of each token.
 * - `blueGreen`: other servers, which have the new weights already, take the place of the old ones.
 */
export const SwapWeights = z.discriminatedUnion('mode', [
  z.strictObject({
    mode: z.enum(['drain', 'abort', 'inFlight']),
    version: Version,
    /** Of the weights, as the servers' machines see it. */
    folder: z.string().min(1),
    label: ServerLabel.default(POLICY_LABEL),
    drainSeconds: DrainSeconds,
  }),
  z.strictObject({
    mode: z.literal('blueGreen'),
    version: Version,
    servers: z.array(Server).min(1).max(1_000),
    label: ServerLabel.default(POLICY_LABEL),
    drainSeconds: DrainSeconds,
  }),
]);
export type SwapWeights = z.infer<typeof SwapWeights>;
export type SwapMode = SwapWeights['mode'];

/** `floor`: the lowest policy version still wanted, from now on. */
export const RaiseFloor = z.strictObject({ version: Version });
export type RaiseFloor = z.infer<typeof RaiseFloor>;
