/** First process of the PID namespace, with which the kernel ends all others of it. */
const OWNED = '"$@"; exit';

/**
 * The beginning of an argv whose rest runs in a PID namespace of its own: whatever it starts, in whatever session, ends with
 * it, and with the process that this argv becomes. `user`: options of unshare(1) for a user namespace, without which only root
 * can have it.
 *
 * The namespace's first process is a shell that waits. A runtime in its place would set new privileges, after which the
 * kernel no longer ends it with its parent; it would replace its environment, by which the host finds what is a sandbox's;
 * and it may wait for ever for a helper that was killed.
 */
export function owned(user: readonly string[]): string[] {
  return [
    ...['/usr/bin/unshare', ...user, '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', '--'],
    ...['/bin/bash', '--norc', '--noprofile', '-c', OWNED, 'owned'],
  ];
}

/** Options for {@link owned}: who calls is root there, with no other id. */
export const AS_ROOT = ['--user', '--map-root-user'] as const;
