/** Oldest Node that every package of the lock file runs on. */
export const NODE_MINIMUM = '20.19.0';

/** Oldest Python that the wheels of requirements.txt are made for. */
export const PYTHON_MINIMUM = '3.10';

/** The Temporal CLI that is downloaded or built when none is found; it carries Temporal Server 1.29.1. */
export const TEMPORAL_CLI = '1.5.1';

/** Oldest Temporal CLI taken from TEMPORAL_CLI or PATH: priority and fairness came with Server 1.29. */
export const TEMPORAL_CLI_MINIMUM = '1.5.0';

/** Compares dotted version numbers, ignoring what follows a hyphen: negative when `a` is older. */
export function compareVersions(a, b) {
  const [left, right] = [a, b].map((version) => version.split(/[-+]/, 1)[0].split('.').map(Number));
  for (let index = 0; index < Math.max(left.length, right.length); index += 1) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
