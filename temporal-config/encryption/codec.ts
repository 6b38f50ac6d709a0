import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import type { Payload, PayloadCodec } from '@temporalio/common';
import proto from '@temporalio/proto';
import { RolloutError } from '../../contracts/failures.ts';
import type { EncryptionKeys } from './keys.ts';

const { Payload: PayloadMessage } = proto.temporal.api.common.v1;
const [CIPHER, NONCE_BYTES, TAG_BYTES] = ['aes-256-gcm', 12, 16] as const;

// Names of Temporal's own encryption samples, in every language: other tools know such payloads by them.
const ENCODING = 'encoding';
const ENCRYPTED = Buffer.from('binary/encrypted');
const KEY_ID = 'encryption-key-id';

/**
 * A payload that this process cannot open. A class of its own: what an activity's arguments throw reaches the
 * workflow as a failure whose type is the name of the error's class.
 */
class PayloadUnreadable extends RolloutError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('PayloadUnreadable', message, options);
  }
}

/**
 * Encrypts payloads with AES-256-GCM before they leave the process, and opens those that come. Without keys it
 * encrypts nothing. A payload that is in the clear is taken as it is, so that encryption can be switched on while
 * rollouts are open.
 */
export class EncryptionCodec implements PayloadCodec {
  readonly #keys: EncryptionKeys | undefined;

  constructor(keys: EncryptionKeys | undefined) {
    this.#keys = keys;
  }

  async encode(payloads: Payload[]): Promise<Payload[]> {
    const { encrypting } = this.#keys ?? {};
    if (!encrypting) return payloads;
    const id = Buffer.from(encrypting.id);
    return payloads.map((payload) => {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv(CIPHER, encrypting.key, nonce).setAAD(id);
      const parts = [nonce, cipher.update(PayloadMessage.encode(payload).finish()), cipher.final()];
      return {
        metadata: { [ENCODING]: ENCRYPTED, [KEY_ID]: id },
        data: Buffer.concat([...parts, cipher.getAuthTag()]),
      };
    });
  }

  /** @throws RolloutError PayloadUnreadable naming the setting */
  async decode(payloads: Payload[]): Promise<Payload[]> {
    return payloads.map((payload) => (isEncrypted(payload) ? this.#open(payload) : payload));
  }

  #open({ metadata, data }: Payload): Payload {
    const id = Buffer.from(metadata?.[KEY_ID] ?? []);
    const key = this.#keys?.find(id.toString());
    if (!key) throw new PayloadUnreadable(`a payload is encrypted with key ${id}: ${advice(this.#keys, id)}`);
    const bytes = Buffer.from(data ?? []);
    try {
      const nonce = bytes.subarray(0, NONCE_BYTES);
      const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(id);
      decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
      const clear = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
      return PayloadMessage.decode(Buffer.concat([clear, decipher.final()]));
    } catch (error) {
      throw new PayloadUnreadable(
        `a payload says key ${id}, but that key of temporal.encryptionKeys does not open it: the file has another ` +
          'key of this name, or the payload was changed',
        { cause: error },
      );
    }
  }
}

function isEncrypted({ metadata }: Payload): boolean {
  return ENCRYPTED.equals(metadata?.[ENCODING] ?? Buffer.of());
}

function advice(keys: EncryptionKeys | undefined, id: Buffer): string {
  return keys === undefined
    ? 'temporal.encryptionKeys is not set here; set it to the file that the other processes have'
    : `the file of temporal.encryptionKeys has no key ${id}`;
}
