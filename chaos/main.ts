import { parseArgs } from 'node:util';
import { takeOwnMounts } from './own-mounts.ts';
import { FAULTS, type FaultKind, KINDS } from './plan.ts';
import { FULL, runRound, SHORT } from './round.ts';
import { readProduction } from './temporal.ts';

/** The seed of a run that names none. */
const SEED = 20_261;

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: String(SEED) },
    rounds: { type: 'string', default: '1' },
    short: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
    faults: { type: 'string' },
    production: { type: 'string' },
    apart: { type: 'boolean', default: false },
  },
});
const [seed, rounds] = [Number(values.seed), Number(values.rounds)];
const only = (values.faults?.split(',') ?? KINDS) as FaultKind[];
if (
  !(Number.isInteger(seed) && Number.isInteger(rounds) && rounds > 0 && only.every((kind) => kind in FAULTS))
) {
  const options =
    '[--seed <number>] [--rounds <number>] [--faults <kind,…>] [--short] [--keep] [--production <file>]';
  process.stderr.write(`npm run chaos -- ${options}\nkinds of faults: ${KINDS.join(', ')}\n`);
  process.exit(2);
}

takeOwnMounts(); // the disk that is made full

/** @returns whether nothing was wrong */
async function runOne(round: number): Promise<boolean> {
  const began = Date.now();
  const say = (line: string) => {
    process.stdout.write(`${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${line}\n`);
  };
  const size = values.short ? SHORT : FULL;
  const production = readProduction(values.production);
  const report = await runRound({ seed: seed + round, size, only, production, keep: values.keep, say });
  for (const problem of report.problems) say(`PROBLEM ${problem}`);
  process.stdout.write(`${JSON.stringify({ ...report, seconds: (Date.now() - began) / 1000 })}\n`);
  return report.problems.length === 0;
}

try {
  let passed = true;
  for (let round = 0; round < rounds; round++) passed = (await runOne(round)) && passed;
  process.exit(passed ? 0 : 1);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
  process.exit(1);
}
