import { open } from 'node:fs/promises';

/** Metadata of a GGUF file: names and values of its header. */
export type GgufMetadata = Map<string, unknown>;

/** Reads the header of a GGUF file, version 2 or 3 (the format is described in ggml's docs/gguf.md). */
export async function readGgufMetadata(file: string): Promise<GgufMetadata> {
  const handle = await open(file, 'r');
  // Metadata comes first; vocabularies of small models fit.
  const bytes = Buffer.alloc(32 << 20);
  const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
  await handle.close();
  const data = bytes.subarray(0, bytesRead);
  let at = 0;
  const take = (size: number) => {
    at += size;
    return at - size;
  };
  const u32 = () => data.readUInt32LE(take(4));
  const u64 = () => Number(data.readBigUInt64LE(take(8)));
  const text = () => {
    const length = u64();
    const start = take(length);
    return data.toString('utf8', start, start + length);
  };
  const value = (type: number): unknown => {
    switch (type) {
      case 0:
        return data.readUInt8(take(1));
      case 1:
        return data.readInt8(take(1));
      case 2:
        return data.readUInt16LE(take(2));
      case 3:
        return data.readInt16LE(take(2));
      case 4:
        return u32();
      case 5:
        return data.readInt32LE(take(4));
      case 6:
        return data.readFloatLE(take(4));
      case 7:
        return data.readUInt8(take(1)) !== 0;
      case 8:
        return text();
      case 9: {
        const of = u32();
        return Array.from({ length: u64() }, () => value(of));
      }
      case 10:
        return u64();
      case 11:
        return Number(data.readBigInt64LE(take(8)));
      case 12:
        return data.readDoubleLE(take(8));
      default:
        throw new Error(`unknown type ${type} in ${file}`);
    }
  };
  if (data.toString('latin1', 0, 4) !== 'GGUF') throw new Error(`${file} is no GGUF file`);
  take(8);
  u64(); // number of tensors
  const metadata: GgufMetadata = new Map();
  for (let left = u64(); left > 0; left--) {
    const name = text();
    metadata.set(name, value(u32()));
  }
  return metadata;
}
