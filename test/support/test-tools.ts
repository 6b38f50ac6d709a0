import { readFileSync } from 'node:fs';
import path from 'node:path';
import { PROJECT_ROOT } from '../../config/tools.ts';

/** What scripts/test-tools found or brought. */
export interface TestTools {
  /** The program. */
  readonly apptainer?: string;
  /** A node_modules folder with packages of tokenizers. */
  readonly tokenizers?: string;
}

/** Nothing, where it has not run in this checkout. */
export function testTools(): TestTools {
  try {
    return JSON.parse(readFileSync(path.join(PROJECT_ROOT, '.rollouts', 'test-tools.json'), 'utf8'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw error;
  }
}
