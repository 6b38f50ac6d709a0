import { z } from 'zod';

/** Names of tenants are fairness keys of Temporal, which takes 64 bytes. */
export const TenantName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/, 'at most 64 letters, digits and . _ @ -');

/** How much of the service a tenant gets while others wait as well; see docs/tenants.md. */
export const TenantShare = z.object({
  weight: z
    .number()
    .min(0.001)
    .max(1000)
    .default(1)
    .describe('Share of what is begun, beside the weights of the others that wait.'),
  priority: z.int().min(1).max(5).default(3).describe('1 to 5: a smaller one goes before every larger one.'),
});

/** On whose behalf a rollout runs. */
export const Tenant = TenantShare.extend({ name: TenantName });
export type Tenant = z.infer<typeof Tenant>;
