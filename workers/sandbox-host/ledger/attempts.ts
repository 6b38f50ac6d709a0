import { appendFile, mkdir, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { fileName } from '../paths.ts';

/** One beginning of a rollout. */
export interface AttemptId {
  readonly workflowRunId: string;
  readonly attempt: number;
}

/**
 * The attempts of one rollout in the order in which they began, kept beside their ledgers, so that a host
 * still knows after a restart which one is the newest.
 */
export class Attempts {
  private readonly folder: string;

  constructor(ledgersDir: string, rolloutId: string) {
    this.folder = path.join(ledgersDir, fileName(rolloutId));
  }

  ledgerFile({ workflowRunId, attempt }: AttemptId): string {
    return path.join(this.folder, `${fileName(workflowRunId)}.${attempt}.jsonl`);
  }

  /**
   * Makes `id` the newest attempt. `resumes`: in a sandbox with what its former one had kept.
   * @throws RolloutError FenceRefused if a newer one has begun, SandboxLost if this one has recorded something
   * already and does not resume: its sandbox is gone, and what it recorded cannot be continued in an empty one;
   * LedgerFailed
   */
  async begin(id: AttemptId, resumes: boolean): Promise<void> {
    try {
      await mkdir(this.folder, { recursive: true, mode: 0o700 });
      const begun = await this.list();
      const refusal = refuse(begun, id);
      if (refusal) throw refusal;
      if (!resumes && (await sizeOf(this.ledgerFile(id))) > 0) {
        throw new RolloutError(
          'SandboxLost',
          `the sandbox of attempt ${id.attempt} is gone, its ledger is not`,
        );
      }
      if (!isSame(begun.at(-1), id)) {
        await appendFile(this.orderFile, `${JSON.stringify(id)}\n`, { mode: 0o600, flush: true });
      }
    } catch (error) {
      if (error instanceof RolloutError) throw error;
      throw new RolloutError('LedgerFailed', `${this.folder}: ${messageOf(error)}`, { cause: error });
    }
  }

  private get orderFile(): string {
    return path.join(this.folder, 'attempts.jsonl');
  }

  private async list(): Promise<AttemptId[]> {
    let text: string;
    try {
      text = await readFile(this.orderFile, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
    return text.split('\n').flatMap((line) => {
      try {
        return line === '' ? [] : [JSON.parse(line) as AttemptId];
      } catch {
        return []; // torn by a crash, so never answered
      }
    });
  }
}

/** Why `id` may not begin after `begun`; null if it may. */
export function refuse(begun: readonly AttemptId[], id: AttemptId): RolloutError | null {
  const newest = begun.at(-1);
  if (!newest || isSame(newest, id)) return null;
  const older = newest.workflowRunId === id.workflowRunId && newest.attempt > id.attempt;
  const left =
    newest.workflowRunId !== id.workflowRunId &&
    begun.some(({ workflowRunId }) => workflowRunId === id.workflowRunId);
  if (!older && !left) return null;
  return new RolloutError(
    'FenceRefused',
    `attempt ${id.attempt} of run ${id.workflowRunId} was given up: ` +
      `attempt ${newest.attempt} of run ${newest.workflowRunId} has begun`,
  );
}

function isSame(a: AttemptId | undefined, b: AttemptId): boolean {
  return a !== undefined && a.workflowRunId === b.workflowRunId && a.attempt === b.attempt;
}

async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 0;
    throw error;
  }
}
