import path from 'node:path';
import { findProgram } from '../../config/programs.ts';
import { testTools } from './test-tools.ts';

/** Names the runtime that the tests of `apptainer` run, in place of what scripts/test-tools found: any version of either. */
export const RUNTIME_VARIABLE = 'TEST_APPTAINER';

/**
 * The apptainer or singularity program for tests: what {@link RUNTIME_VARIABLE} names, or what scripts/test-tools found
 * or brought; '' if there is none here.
 */
export const APPTAINER = apptainerForTests();

/** For `skip` of tests that need it: false, or the reason. Never in CI. */
export const WITHOUT_APPTAINER =
  APPTAINER === '' ? 'apptainer is not on PATH; see scripts/test-tools/README.md' : false;

function apptainerForTests(): string {
  const wanted = process.env[RUNTIME_VARIABLE];
  if (wanted) {
    if (!findProgram([path.basename(wanted)], path.dirname(wanted)))
      throw new Error(`${RUNTIME_VARIABLE}=${wanted}: no program has this absolute path`);
    return wanted;
  }
  const known = testTools().apptainer;
  if (known) return known;
  const program = findProgram(['apptainer', 'singularity']);
  if (program === '' && process.env.CI === 'true') {
    throw new Error('CI has no apptainer: run `node scripts/test-tools/main.mjs` first');
  }
  return program;
}
