import { RolloutError } from '../../../contracts/failures.ts';
import { execute, type OneOffEnd, type Place } from './exec.ts';

/** Milliseconds for one file. */
const FILE_MS = 60_000;

/** Arguments: path, mode. Writes beside and renames, through a symlink to what it points at. */
const WRITE = `
set -e
target=$(readlink -m -- "$1")
mkdir -p -- "$(dirname -- "$target")"
[ ! -d "$target" ] || { echo "$1 is a folder" >&2; exit 1; }
temporary=$(mktemp -- "$(dirname -- "$target")/.rollout-XXXXXXXX")
trap 'rm -f -- "$temporary"' EXIT
cat > "$temporary"
chmod -- "$2" "$temporary"
mv -T -- "$temporary" "$target"
trap - EXIT`;

/** Arguments: path, most bytes. The size goes to standard error. */
const READ = `
set -e
[ -f "$1" ] || { echo "$1 is not a file" >&2; exit 1; }
size=$(stat -Lc %s -- "$1")
head -c "$2" < "$1"
echo "$size" >&2`;

/**
 * Writes a file whole, making its folders. Runs inside the sandbox: the host follows none of its paths.
 * @throws RolloutError HandlerFailed with the system's words when the sandbox refuses
 */
export async function writeFile(
  place: Place,
  file: { path: string; content: Buffer; mode: number },
  signal: AbortSignal,
): Promise<void> {
  const argv = ['/bin/bash', '-c', WRITE, 'write', file.path, file.mode.toString(8)];
  check(await inside(place, argv, file.content, 4096, signal), `write ${file.path}`);
}

/**
 * Reads up to `maxBytes` of a file, and its size. Runs inside the sandbox.
 * @throws RolloutError HandlerFailed with the system's words when the sandbox refuses
 */
export async function readFile(
  place: Place,
  file: { path: string; maxBytes: number },
  signal: AbortSignal,
): Promise<{ content: Buffer; totalBytes: number }> {
  const argv = ['/bin/bash', '-c', READ, 'read', file.path, String(file.maxBytes)];
  // The collector keeps half of its bound from the head: twice the bytes asked for keeps them all.
  const end = await inside(place, argv, null, 2 * file.maxBytes, signal);
  check(end, `read ${file.path}`);
  return { content: end.stdout.bytes(), totalBytes: Number(end.stderr.finish().text.trim()) };
}

function inside(
  place: Place,
  argv: string[],
  stdin: Buffer | null,
  maxOutputBytes: number,
  signal: AbortSignal,
): Promise<OneOffEnd> {
  const cwd = place.handle.workspace;
  return execute(place, {
    argv,
    stdin,
    cwd,
    environment: {},
    timeoutMs: FILE_MS,
    maxOutputBytes,
    signal,
  });
}

function check(end: OneOffEnd, what: string): void {
  if (end.exitCode === 0) return;
  const why = end.timedOut ? 'it took too long' : end.stderr.finish().text.trim() || `exit ${end.exitCode}`;
  throw new RolloutError('HandlerFailed', `cannot ${what} in the sandbox: ${why}`);
}
