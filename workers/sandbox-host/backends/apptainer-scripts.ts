import { RolloutError } from '../../../contracts/failures.ts';
import { INODE_BYTES } from '../limits/memory.ts';
import { LOADER } from './apptainer-shared.ts';
import type { Program } from './backend.ts';
import { CLOSE_DESCRIPTORS } from './launcher.ts';
import { SEAL, UNTRACEABLE, withoutPrivileges } from './namespaces.ts';
import { FILTER_NAME } from './seccomp/install.ts';

/** Where the host's tools are inside. */
export const TOOLS = '/run/rollout-tools';

/** The argv of one of the tools, which needs nothing of the image. */
export function tool(name: string, ...args: string[]): string[] {
  return [`${TOOLS}/${LOADER}`, '--inhibit-cache', '--library-path', TOOLS, `${TOOLS}/${name}`, ...args];
}

const HOSTS_BASH = tool('bash', '--norc', '--noprofile');

/** The beginning of an argv whose rest has no privilege of the sandbox's user namespace, as `program` says. */
export function dropPrivileges(program: Pick<Program, 'overModes'>): string[] {
  return tool('setpriv', ...withoutPrivileges(program), '--');
}

/**
 * File descriptors of the first process, by which the host finds folders of the sandbox: it cannot go through the
 * root folder when FUSE shows that to its owner alone.
 */
export const HELD = { proc: 7, shm: 8, home: 9 } as const;

/** Where an image says what environment it has: scripts, which the runtime would run with all privileges. */
export const IMAGE_SETTINGS = '/.singularity.d/env';

/**
 * First process of a sandbox, by the host's own bash, with all privileges of its user namespace to begin with. Tells
 * the host what it sees of the network; uncovers `$3`, if that is set; forbids user namespaces, in which what runs here
 * could get privileges back and mount memory without bound; gives each file system in memory its share of `$1`
 * bytes, processes the rest, and /dev none; makes the home folder (`$2`) one that can be written to, whoever owns
 * the image's; then takes on the filter, gives up its privileges and environment, and lives as long as the host holds
 * its stdin. What the host counts is held open as {@link HELD}.
 */
const FIRST = `
${CLOSE_DESCRIPTORS}
printf '%s\\0' "$(</proc/net/dev)"
unset \${!LD_*}
[ -z "$3" ] || ${tool('umount').join(' ')} -i "$3" || exit 1
${SEAL} || exit 1
[ -d "$2" ] || ${tool('mkdir').join(' ')} -p "$2" || exit 1
[ -w "$2" ] || ${tool('mount').join(' ')} -i -t tmpfs -o nosuid,nodev,mode=700 home "$2" || exit 1
declare -A topmost
while read -r _ folder kind options _; do topmost[$folder]="$kind,$options"; done < /proc/self/mounts
# What the runtimes do by themselves where they find no overlay that works: all of the root folder can only be read.
[[ \${topmost[/]} != tmpfs,* ]] || { echo "FATAL: the root folder is not writable: --writable-tmpfs has no effect here" >&2; exit 1; }
for folder in "\${!topmost[@]}"; do
  options=\${topmost[$folder]}
  [[ $options = tmpfs,* && -d $folder ]] || continue
  flags=remount
  for option in \${options//,/ }; do
    case $option in
      ro) continue 2 ;;
      nosuid | nodev | noexec | relatime | noatime) flags+=,$option ;;
    esac
  done
  case $folder in
    /dev) flags+=,ro size=$(($1 / 64)) ;;
    /dev/shm | "$2") size=$(($1 / 8)) ;;
    *) size=$(($1 / 2)) ;;
  esac
  options="$flags,size=$size,nr_inodes=$((size / 8 / ${INODE_BYTES} + 1))"
  ${tool('mount').join(' ')} -i --options-mode ignore -o "$options" "$folder" || exit 1
done
cd /tmp
exec ${HELD.proc}</proc
[ ! -d /dev/shm ] || exec ${HELD.shm}</dev/shm
[ -z "\${topmost[$2]}" ] || exec ${HELD.home}<"$2"
exec -c ${TOOLS}/${FILTER_NAME} ${tool('setpriv', ...UNTRACEABLE, '--').join(' ')} ${HOSTS_BASH.join(' ')} -c \\
  'printf "\\0ready\\n"; exec >/dev/null 2>&1; read -r _'`;

/**
 * Runs as root in a mount namespace of its own, where /tmp is this sandbox's: gives the user id `$1` a name, without
 * which Apptainer does not run, then becomes the rest.
 */
export const NAMED = `
set -e
printf 'root:x:0:0:root:/root:/bin/sh\\nsandbox:x:%s:%s:sandbox:/:/bin/sh\\n' "$1" "$1" > /tmp/passwd
printf 'root:x:0:\\nsandbox:x:%s:\\n' "$1" > /tmp/group
chmod 644 /tmp/passwd /tmp/group
for name in passwd group; do mount --bind /tmp/$name /etc/$name; done
shift
exec "$@"`;

/** The argv of the first process. `covered`: what hides something of the image from the runtime; '' if nothing does. */
export function firstProcess(memoryBytes: number, home: string, covered: string): string[] {
  return [...HOSTS_BASH, '-c', FIRST, 'first', String(memoryBytes), home, covered];
}

/**
 * The argv that prints the environment that an image sets, each variable up to a null: what the runtime would have had,
 * by the image's own bash, with the filter and without privileges.
 */
export const READ_IMAGE_SETTINGS = [
  ...['/bin/bash', '--norc', '--noprofile', '-c'],
  `exec 3>&1 </dev/null >/dev/null 2>&1
for script in ${IMAGE_SETTINGS}/*.sh; do [ ! -f "$script" ] || . "$script"; done
exec /usr/bin/env -0 >&3`,
];

/** True if this is all that the first process says before it stands. */
export function isReady(text: string): boolean {
  return text.endsWith('\0ready\n');
}

/** Looks at what the first process said. @throws RolloutError SandboxFailed if it sees any network but its own loopback */
export function checkReport(text: string): void {
  const [network = ''] = text.split('\0');
  const devices = network
    .split('\n')
    .slice(2)
    .map((line) => line.split(':')[0]?.trim());
  if (devices.length !== 1 || devices[0] !== 'lo') {
    throw new RolloutError(
      'SandboxFailed',
      `the sandbox has network devices (${devices.join(', ') || 'unknown'}): --net --network none has no effect here`,
    );
  }
}

/** What {@link READ_IMAGE_SETTINGS} printed. @throws RolloutError SandboxFailed if it did not come to that */
export function readSettings(text: string): Record<string, string> {
  const entries = text.split('\0').slice(0, -1);
  if (entries.length === 0) {
    throw new RolloutError('SandboxFailed', `its scripts in ${IMAGE_SETTINGS} end the shell`);
  }
  const environment: Record<string, string> = {};
  for (const entry of entries) {
    const at = entry.indexOf('=');
    const [name, value] = [entry.slice(0, at), entry.slice(at + 1)];
    if (at > 0 && !OF_THE_RUNTIME.test(name)) environment[name] = value;
  }
  const { LD_LIBRARY_PATH: libraries, ...rest } = environment;
  const own = libraries?.split(':').filter((folder) => folder !== '' && folder !== RUNTIME_LIBRARIES);
  return own && own.length > 0 ? { ...rest, LD_LIBRARY_PATH: own.join(':') } : rest;
}

/** Folder that Apptainer adds to the library path. */
const RUNTIME_LIBRARIES = '/.singularity.d/libs';

/** Variables that Apptainer and the shell set, not the image; functions are the shell's as well. */
const OF_THE_RUNTIME =
  /^(APPTAINER|SINGULARITY|BASH_FUNC_)|^(PWD|OLDPWD|SHLVL|_|HOME|USER|LOGNAME|TERM|LANG|LC_ALL|PS1|PROMPT_COMMAND)$/;

/**
 * Runs on the host beside a sandbox, as its owner: starts Apptainer (`$@`), and when the host lets go of this
 * script's stdin or is gone, kills the sandbox's first process and its file system helpers, whatever hostile
 * code has done to the first one. Apptainer itself then clears up and ends.
 */
export const SUPERVISE = `
"$@" <&0 & runtime=$!
(
  read -r _
  exec 9<> <(:) # a pipe that nothing comes from: a pause without a process
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    for children in /proc/$runtime/task/*/children; do
      for parent in $(<"$children"); do
        for helpers in /proc/$parent/task/*/children; do
          for helper in $(<"$helpers"); do kill -KILL "$helper"; done
        done
      done
    done
    read -r -t 0.1 -u 9 _
  done
) <&0 >/dev/null 2>&1 & watch=$!
wait $runtime; status=$?
{ kill -KILL $watch; wait $watch; } 2>/dev/null # or bash would tell of its death
exit $status`;
