import { fileURLToPath } from 'node:url';
import type { DataConverter } from '@temporalio/common';
import type { Config } from '../../config/load.ts';
import { EncryptionCodec } from './codec.ts';
import { readKeys } from './keys.ts';

const FAILURE_CONVERTER = fileURLToPath(new URL('failure-converter.ts', import.meta.url));

/**
 * How every client and worker of this project writes payloads and reads them: encrypted if there are keys.
 * @throws RolloutError InvalidRequest naming the setting and the file
 */
export function dataConverterOf({ temporal }: Pick<Config, 'temporal'>): DataConverter {
  const { encryptionKeys: file } = temporal;
  if (file === undefined) return { payloadCodecs: [new EncryptionCodec(undefined)] };
  return { payloadCodecs: [new EncryptionCodec(readKeys(file))], failureConverterPath: FAILURE_CONVERTER };
}
