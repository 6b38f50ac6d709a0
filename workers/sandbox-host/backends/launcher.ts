import type { SandboxLimits } from '../../../contracts/sandbox.ts';

/**
 * For bash inside: closes every file descriptor above 2. Whatever launched the host may have left some open,
 * and they would lead out of the sandbox.
 */
export const CLOSE_DESCRIPTORS =
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the braces are for bash
  'for fd in /proc/self/fd/*; do fd=${fd##*/}; ((fd > 2)) && eval "exec $fd>&-"; done';

/**
 * Runs inside, just before the program: goes to the folder and sets the limits. Should the machine run out of
 * memory, what runs in sandboxes goes first.
 * Arguments: folder, name of a variable that the program is not to have or nothing, limits as `ulimit` flags and values up to `--`, then the program.
 */
const SCRIPT = `
${CLOSE_DESCRIPTORS}
cd -- "$1" || exit 125
hidden=$2
shift 2
{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null
while [ "$1" != -- ]; do ulimit "$1" "$2" || exit 125; shift 2; done
shift
unset OLDPWD $hidden
exec -- "$@"`;

/** Memory that a process may take above the limit of the sandbox before it is refused more, if watching is late. */
const UNWATCHED_BYTES = 4 * 1024 ** 3;

/** Seconds between the signal that a program may catch (SIGXCPU) and the one that it may not. */
const CPU_GRACE_SECONDS = 2;

/**
 * The argv that runs `argv` in `cwd` under `limits`, from inside a sandbox. 125: folder or limit refused. `hidden`: a
 * variable of the environment that is for who stands outside alone.
 */
export function launch(
  argv: readonly string[],
  cwd: string,
  limits: Pick<SandboxLimits, 'memoryBytes' | 'fileBytes' | 'openFiles' | 'cpuSeconds'> & {
    processes: number | null;
  },
  hidden = '',
): string[] {
  // ulimit counts memory and file sizes in KiB blocks.
  const kib = (bytes: number): string => String(Math.max(1, Math.floor(bytes / 1024)));
  const flags = [
    // A backstop to watching: private memory that can be written to. Not address space (-v), of which Node,
    // Java and Go reserve far more than they use.
    ['-d', kib(limits.memoryBytes + UNWATCHED_BYTES)],
    ['-f', kib(limits.fileBytes)],
    ['-n', String(limits.openFiles)],
    limits.processes === null ? [] : ['-u', String(limits.processes)],
    ['-c', '0'],
    // In this order: a hard limit cannot be below the soft one.
    ['-St', String(limits.cpuSeconds)],
    ['-Ht', String(limits.cpuSeconds + CPU_GRACE_SECONDS)],
  ].flat();
  return ['/bin/bash', '--norc', '--noprofile', '-c', SCRIPT, 'launch', cwd, hidden, ...flags, '--', ...argv];
}
