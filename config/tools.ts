import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';

/** The checkout's root folder. */
export const PROJECT_ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');

/** Absolute paths of the outside programs and the model that the set-up brought. */
export const Tools = z.object({
  temporal: z.string(),
  python: z.string(),
  bwrap: z.string(),
  /** GGUF file of the model that the embedded LLM server serves. */
  model: z.string(),
});
export type Tools = z.infer<typeof Tools>;

/**
 * What the set-up found or installed, from `.rollouts/tools.json` in the checkout.
 * @throws Error that names the command to run when there is none.
 */
export function loadTools(root: string = PROJECT_ROOT): Tools {
  const file = path.join(root, '.rollouts', 'tools.json');
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new Error(`${file} is missing: run "npm run setup" once in this checkout`, { cause: error });
  }
  return Tools.parse(JSON.parse(text));
}
