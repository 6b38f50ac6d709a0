import { readFileSync } from 'node:fs';
import path from 'node:path';
import { findProgram } from '../../config/programs.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';

/** The apptainer program for tests, as scripts/test-tools found or brought it; '' if there is none here. */
export const APPTAINER = apptainerForTests();

/** For `skip` of tests that need it: false, or the reason. Never in CI. */
export const WITHOUT_APPTAINER =
  APPTAINER === '' ? 'apptainer is not on PATH; see scripts/test-tools/README.md' : false;

function apptainerForTests(): string {
  try {
    const text = readFileSync(path.join(PROJECT_ROOT, '.rollouts', 'test-tools.json'), 'utf8');
    return (JSON.parse(text) as { apptainer: string }).apptainer;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const program = findProgram(['apptainer', 'singularity']);
  if (program === '' && process.env.CI === 'true') {
    throw new Error('CI has no apptainer: run `node scripts/test-tools/main.mjs` first');
  }
  return program;
}
