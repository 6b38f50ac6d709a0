import type { Selection } from '../../contracts/sweep.ts';

/** What a selection looks at. */
export interface Selectable {
  readonly rolloutId: string;
  readonly batchId: string | undefined;
  readonly groupId: string | undefined;
  /** Oldest policy version among its tokens; null before the first. */
  readonly oldestVersion: number | null;
}

/** True if every part that the selection names matches. */
export function isSelected(selection: Selection, one: Selectable): boolean {
  const { rolloutIds, batchId, groupId, belowVersion } = selection;
  if (rolloutIds && !rolloutIds.includes(one.rolloutId)) return false;
  if (batchId !== undefined && one.batchId !== batchId) return false;
  if (groupId !== undefined && one.groupId !== groupId) return false;
  if (belowVersion === undefined) return true;
  return one.oldestVersion !== null && one.oldestVersion < belowVersion;
}
