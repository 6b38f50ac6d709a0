/** Environment of the programs of the host's side that need to find others. */
export const SYSTEM_PATH = '/usr/sbin:/usr/bin:/sbin:/bin';

/** In a mount namespace of its own, as root, shows `$2…` (pairs of source and name) as /tmp/<name>. */
const STAGE = `
set -e
stage=$1; shift
# The runtime may need folders of its own in /tmp, for moments.
mount -t tmpfs -o mode=1777,size=16m stage "$stage"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir "$stage/$2"; else : > "$stage/$2"; fi
  mount --rbind "$1" "$stage/$2"
  shift 2
done
shift
mount --rbind "$stage" /tmp
exec "$@"`;

/** The beginning of an argv whose rest runs as `uid`; empty for null, the host's own user. */
export function asUser(uid: number | null): string[] {
  if (uid === null) return [];
  return ['/usr/bin/setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--'];
}

/**
 * The argv that runs `argv` as `uid` where each of `sources` is /tmp/<its name>: another user may not reach
 * where they lie. `stage` is an empty folder; `asRoot` begins an argv whose rest runs then.
 */
export function staged(
  stage: string,
  sources: Readonly<Record<string, string>>,
  uid: number,
  argv: string[],
  asRoot: readonly string[] = [],
): string[] {
  const pairs = Object.entries(sources).flatMap(([name, source]) => [source, name]);
  return [
    ...['/usr/bin/unshare', '--mount', '--propagation', 'private', '--', '/bin/sh', '-c', STAGE, 'stage'],
    ...[stage, ...pairs, '--', ...asRoot, ...asUser(uid), ...argv],
  ];
}
