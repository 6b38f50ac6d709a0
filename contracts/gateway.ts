import { z } from 'zod';
import { TenantName } from './tenant.ts';

/** What a bearer token may be used for: `read` and `write` of rollouts; `admin`: everything. */
export const Scope = z.enum(['read', 'write', 'admin']);
export type Scope = z.infer<typeof Scope>;

/** A file of tokens: hashes only, so that whoever reads the file can use none. */
export const TokensFile = z.array(
  z.strictObject({
    /** Who it is: for logs, and the tenant whose rollouts it begins. */
    name: TenantName,
    /** SHA-256 of the token, in hexadecimal. */
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
    scopes: z.array(Scope).min(1),
  }),
);
export type TokensFile = z.infer<typeof TokensFile>;
