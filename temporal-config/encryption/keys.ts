import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { RolloutError } from '../../contracts/failures.ts';
import { problemsOf } from '../../contracts/problems.ts';

/** The file that `temporal.encryptionKeys` names. The first key encrypts; all of them decrypt. */
const KeysFile = z
  .array(
    z.strictObject({
      /** Goes with every payload in the clear, so that it is known which key opens it. */
      id: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/),
      /** 32 bytes in base64. */
      key: z
        .base64()
        .refine((text) => Buffer.from(text, 'base64').length === 32, 'a key has 32 bytes, in base64'),
    }),
  )
  .min(1)
  .refine((keys) => new Set(keys.map(({ id }) => id)).size === keys.length, 'two keys have the same id');
type KeysFile = z.infer<typeof KeysFile>;

/** Keys for payloads, by id. */
export interface EncryptionKeys {
  readonly encrypting: { readonly id: string; readonly key: KeyObject };
  find(id: string): KeyObject | undefined;
}

/** @throws RolloutError InvalidRequest naming the setting, the file and what is wrong with it */
export function readKeys(file: string): EncryptionKeys {
  const keys = readFile(file).map(({ id, key }) => ({ id, key: createSecretKey(key, 'base64') }));
  const byId = new Map(keys.map(({ id, key }) => [id, key]));
  return { encrypting: keys[0] as EncryptionKeys['encrypting'], find: (id) => byId.get(id) };
}

/**
 * Adds a new random key to a file, which is made if it is not there. It is the last one, which only decrypts, until
 * {@link useKey}: every process must know a key before the first one encrypts with it.
 * @throws RolloutError InvalidRequest if the id is there, or the file is not one of keys
 */
export function addKey(file: string, id: string): void {
  const keys = existsSync(file) ? readFile(file) : [];
  writeFile(file, [...keys, { id, key: randomBytes(32).toString('base64') }]);
}

/** Makes a key of a file the one that encrypts. @throws RolloutError InvalidRequest if there is no such key */
export function useKey(file: string, id: string): void {
  const keys = readFile(file);
  const chosen = keys.find((key) => key.id === id);
  if (!chosen) throw wrong(file, `has no key ${id}; there are ${keys.map((key) => key.id).join(', ')}`);
  writeFile(file, [chosen, ...keys.filter((key) => key !== chosen)]);
}

function readFile(file: string): KeysFile {
  let text: string;
  try {
    // Everybody's eyes are too many; a group may read, since that is how secrets are mounted.
    if ((statSync(file).mode & 0o007) !== 0) {
      throw wrong(file, 'may be read by every user of this machine: chmod 600');
    }
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof RolloutError) throw error;
    throw wrong(file, (error as Error).message);
  }
  return parse(file, text);
}

function parse(file: string, text: string): KeysFile {
  let tree: unknown;
  try {
    tree = JSON.parse(text);
  } catch {
    throw wrong(file, 'is no JSON'); // the parser's own message would quote the text
  }
  return checked(file, tree);
}

function writeFile(file: string, keys: KeysFile): void {
  checked(file, keys);
  writeFileSync(`${file}.new`, `${JSON.stringify(keys, null, 2)}\n`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

function checked(file: string, tree: unknown): KeysFile {
  const parsed = KeysFile.safeParse(tree);
  if (parsed.success) return parsed.data;
  throw wrong(file, problemsOf(parsed.error));
}

function wrong(file: string, problem: string): RolloutError {
  return new RolloutError('InvalidRequest', `temporal.encryptionKeys: ${file}: ${problem}`);
}
