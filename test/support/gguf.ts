import { copyFile, open } from 'node:fs/promises';

/** Metadata of a GGUF file: names and values of its header. */
export type GgufMetadata = Map<string, unknown>;

/** Where a tensor lies in its file. */
interface Tensor {
  readonly type: number;
  /** Of values. */
  readonly count: number;
  /** From the beginning of the file. */
  readonly offset: number;
}

const F32 = 0;

export async function readGgufMetadata(file: string): Promise<GgufMetadata> {
  return (await readHeader(file)).metadata;
}

/**
 * Copies a model with other weights: its last norm is scaled, and with it every logit, so the copy samples at
 * temperature 1 what the model itself does at 1/`scale`.
 */
export async function scaleGguf(file: string, copy: string, scale: number): Promise<void> {
  const { tensors } = await readHeader(file);
  const norm = tensors.get('output_norm.weight');
  if (norm?.type !== F32) throw new Error(`${file} has no last norm in float32`);
  await copyFile(file, copy);
  const handle = await open(copy, 'r+');
  const values = Buffer.alloc(4 * norm.count);
  await handle.read(values, 0, values.length, norm.offset);
  for (let at = 0; at < values.length; at += 4) values.writeFloatLE(values.readFloatLE(at) * scale, at);
  await handle.write(values, 0, values.length, norm.offset);
  await handle.close();
}

/** Reads the header of a GGUF file, version 2 or 3 (the format is described in ggml's docs/gguf.md). */
async function readHeader(file: string): Promise<{ metadata: GgufMetadata; tensors: Map<string, Tensor> }> {
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
  const tensorCount = u64();
  const metadata: GgufMetadata = new Map();
  for (let left = u64(); left > 0; left--) {
    const name = text();
    metadata.set(name, value(u32()));
  }
  const listed = Array.from({ length: tensorCount }, () => {
    const name = text();
    const dimensions = Array.from({ length: u32() }, () => u64());
    return {
      name,
      type: u32(),
      count: dimensions.reduce((product, each) => product * each, 1),
      offset: u64(),
    };
  });
  // Their data begin after the header, aligned.
  const alignment = Number(metadata.get('general.alignment') ?? 32);
  const start = Math.ceil(at / alignment) * alignment;
  const tensors = new Map(
    listed.map(({ name, offset, ...rest }) => [name, { ...rest, offset: start + offset }]),
  );
  return { metadata, tensors };
}
