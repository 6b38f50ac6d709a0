import { findProgram } from '../../config/programs.ts';
import { testTools } from './test-tools.ts';

/** The apptainer program for tests, as scripts/test-tools found or brought it; '' if there is none here. */
export const APPTAINER = apptainerForTests();

/** For `skip` of tests that need it: false, or the reason. Never in CI. */
export const WITHOUT_APPTAINER =
  APPTAINER === '' ? 'apptainer is not on PATH; see scripts/test-tools/README.md' : false;

function apptainerForTests(): string {
  const known = testTools().apptainer;
  if (known) return known;
  const program = findProgram(['apptainer', 'singularity']);
  if (program === '' && process.env.CI === 'true') {
    throw new Error('CI has no apptainer: run `node scripts/test-tools/main.mjs` first');
  }
  return program;
}
