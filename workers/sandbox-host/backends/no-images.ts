import { RolloutError } from '../../../contracts/failures.ts';
import type { SandboxKind, SandboxSpec } from '../../../contracts/sandbox.ts';

/** For backends without images. @throws RolloutError SandboxUnavailable if the specification names one */
export function refuseImage(backend: SandboxKind, spec: SandboxSpec): void {
  if (spec.image === undefined) return;
  throw new RolloutError(
    'SandboxUnavailable',
    `the task wants the image ${spec.image}, which the backend ${backend} cannot show: ` +
      'set sandbox.backend to apptainer on this host',
  );
}
