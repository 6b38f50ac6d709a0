/**
 * Closes what whoever started this process left open, but for standard streams and Node's channel to its parent: a
 * program on its way into a sandbox has it there for a moment, and a folder of the host leads to all others. Then gives
 * this process a session keyring of its own by keyctl(2), KEYCTL_JOIN_SESSION_KEYRING, whose number is that of its
 * machine, and becomes the program. A kernel without keys (ENOSYS, 38) needs none.
 */
const SCRIPT = `
import ctypes, os, sys
channel = os.environ.get('NODE_CHANNEL_FD')
for fd in os.listdir('/proc/self/fd'):
    if int(fd) > 2 and fd != channel:
        try: os.close(int(fd))
        except OSError: pass # of the list itself
libc = ctypes.CDLL(None, use_errno=True)
call = {'x86_64': 250, 'ppc64le': 271, 's390x': 280}.get(os.uname().machine, 219)
if libc.syscall(call, 1, None) < 0 and ctypes.get_errno() != 38:
    sys.exit('no session keyring: ' + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])`;

/**
 * The argv that runs `argv` without the open files and the keys of the session that it is started in. Keys (of
 * Kerberos, of encrypted file systems) go to whatever a process starts, through all namespaces, to be read.
 */
export function withNothingInherited(python: string, argv: readonly string[]): [string, ...string[]] {
  return [python, '-I', '-S', '-c', SCRIPT, ...argv];
}
