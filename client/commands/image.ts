import path from 'node:path';
import type { Config } from '../../config/load.ts';
import { apptainerProgram } from '../../config/programs.ts';
import { RolloutError } from '../../contracts/failures.ts';
import { buildImage } from '../../workers/sandbox-host/images/build.ts';
import type { Output } from '../output.ts';

/** `rollouts image build <source>`: prints the path of the image. */
export async function imageCommand(
  config: Config,
  [action, source]: readonly string[],
  flags: { out?: string },
  output: Output,
): Promise<number> {
  if (action !== 'build' || source === undefined) {
    throw new RolloutError('InvalidRequest', 'use: rollouts image build <definition|archive|folder>');
  }
  const image = await buildImage(source, {
    program: apptainerProgram(config),
    cacheDir: path.join(config.derived.stateFolder, 'images'),
    maxBytes: config.sandbox.imageBytes,
    minFreeBytes: config.sandbox.minFreeBytes,
    out: flags.out,
    onLine: (line) => output.note(line),
  });
  output.note(image.built ? `built, ${image.bytes} bytes` : 'from the cache');
  output.result(image, () => image.path);
  return 0;
}
