import { once } from 'node:events';
import type { FastifyBaseLogger } from 'fastify';
import { loadConfig } from '../../config/load.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { EncryptionCodec } from '../../temporal-config/encryption/codec.ts';
import { readKeys } from '../../temporal-config/encryption/keys.ts';
import { makeLogger } from '../../workers/log.ts';
import { announceReady } from '../../workers/process.ts';
import { tokensFor } from '../auth.ts';
import { makeCodecServer } from './app.ts';

/** Entry of the codec server's process. */
async function main(): Promise<void> {
  const config = loadConfig();
  const { address, port, origins } = config.codecServer;
  const { encryptionKeys } = config.temporal;
  if (encryptionKeys === undefined) {
    throw new RolloutError(
      'InvalidRequest',
      'temporal.encryptionKeys: set it to the file of keys; without one nothing is encrypted',
    );
  }
  const app = await makeCodecServer({
    codec: new EncryptionCodec(readKeys(encryptionKeys)),
    origins,
    tokens: tokensFor(config, 'codecServer.address', address),
    log: makeLogger('codecServer', config) as FastifyBaseLogger,
  });
  await app.listen({ host: address, port });
  announceReady({ port });
  await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT'), once(process, 'disconnect')]);
  await app.close();
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    process.stderr.write(`codec server: ${messageOf(error)}\n`);
    process.exit(1);
  },
);
