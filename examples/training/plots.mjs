#!/usr/bin/env node
// `npm run train:plots`: draws the runs of a folder into one picture; brings matplotlib the first time.
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { pinnedEnvironment } from '../../scripts/setup/lib/environment.mjs';

const { values: options } = parseArgs({
  options: {
    /** Where runs are kept. */
    folder: { type: 'string', default: path.join(import.meta.dirname, '..', '..', '.rollouts', 'training') },
    out: { type: 'string', default: 'training.png' },
  },
});

const environment = await pinnedEnvironment({
  name: 'plots',
  requirements: path.join(import.meta.dirname, 'plot-requirements.txt'),
  env: process.env,
  say: () => console.error('bringing matplotlib'),
});
const script = path.join(import.meta.dirname, 'plot.py');
execFileSync(path.join(environment, 'bin', 'python'), [script, options.folder, options.out], {
  stdio: 'inherit',
});
console.log(path.resolve(options.out));
