import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import type { Config } from '../../config/load.ts';
import { RolloutError } from '../../contracts/failures.ts';
import { Scope, TokensFile } from '../../contracts/gateway.ts';
import { problemsOf } from '../../contracts/problems.ts';
import type { Output } from '../output.ts';

/** `rollouts token <name>`: makes a bearer token for the HTTP service. The file gets its hash; it is shown once. */
export async function tokenCommand(
  config: Config,
  name: string,
  scopes: string,
  output: Output,
): Promise<number> {
  const { tokens: file } = config.gateway;
  if (file === undefined)
    throw new RolloutError('InvalidRequest', 'gateway.tokens: set it to the file to add to');
  const wanted = z.array(Scope).min(1).safeParse(scopes.split(','));
  if (!wanted.success) throw new RolloutError('InvalidRequest', `--scopes: ${problemsOf(wanted.error)}`);
  const known = existsSync(file) ? TokensFile.parse(JSON.parse(readFileSync(file, 'utf8'))) : [];
  if (known.some((one) => one.name === name)) {
    throw new RolloutError('InvalidRequest', `${file} has a token of ${name}: remove that one first`);
  }
  const token = randomBytes(32).toString('base64url');
  const sha256 = createHash('sha256').update(token).digest('hex');
  const tokens: TokensFile = [...known, { name, sha256, scopes: wanted.data }];
  writeFileSync(`${file}.new`, `${JSON.stringify(tokens, null, 2)}\n`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
  output.result({ name, scopes: wanted.data, token }, () => token);
  return 0;
}
