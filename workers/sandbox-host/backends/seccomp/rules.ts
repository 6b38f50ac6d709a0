/** Processors that there is a filter for, as Node names them. */
export type Processor = 'x64' | 'arm64';

/** What the kernel is told of a processor's system calls. */
interface Abi {
  /** AUDIT_ARCH_… of <linux/audit.h>. */
  readonly arch: number;
  /** Numbers of system calls that differ between processors; a name may be missing. */
  readonly numbers: Readonly<Record<string, number>>;
}

/** Numbers of <asm/unistd_64.h> and, for arm64, <asm-generic/unistd.h>. */
export const ABIS: Record<Processor, Abi> = {
  x64: {
    arch: 0xc000_003e,
    numbers: {
      ...{ mmap: 9, ioctl: 16, shmget: 29, socket: 41, socketpair: 53, clone: 56, syslog: 103 },
      ...{ pivot_root: 155, acct: 163, settimeofday: 164, mount: 165, umount2: 166, swapon: 167 },
      ...{ swapoff: 168, reboot: 169, iopl: 172, ioperm: 173, init_module: 175, delete_module: 176 },
      ...{ quotactl: 179, clock_settime: 227, kexec_load: 246, add_key: 248, request_key: 249 },
      ...{ keyctl: 250, unshare: 272, vmsplice: 278, perf_event_open: 298, fanotify_init: 300 },
      ...{ open_by_handle_at: 304, finit_module: 313, memfd_create: 319, kexec_file_load: 320 },
      ...{ bpf: 321, userfaultfd: 323 },
    },
  },
  arm64: {
    arch: 0xc000_00b7,
    numbers: {
      ...{ ioctl: 29, umount2: 39, mount: 40, pivot_root: 41, quotactl: 60, vmsplice: 75, acct: 89 },
      ...{ unshare: 97, kexec_load: 104, init_module: 105, delete_module: 106, clock_settime: 112 },
      ...{ syslog: 116, reboot: 142, settimeofday: 170, shmget: 194, socket: 198, socketpair: 199 },
      ...{ add_key: 217, request_key: 218, keyctl: 219, clone: 220, mmap: 222, swapon: 224, swapoff: 225 },
      ...{ perf_event_open: 241, fanotify_init: 262, open_by_handle_at: 265, finit_module: 273 },
      ...{ memfd_create: 279, bpf: 280, userfaultfd: 282, kexec_file_load: 294 },
    },
  },
};

/** Numbers that are the same on all processors. */
export const NUMBERS: Readonly<Record<string, number>> = {
  ...{ io_uring_setup: 425, io_uring_enter: 426, io_uring_register: 427, open_tree: 428, move_mount: 429 },
  ...{ fsopen: 430, fsconfig: 431, fsmount: 432, fspick: 433, clone3: 435, mount_setattr: 442 },
  ...{ quotactl_fd: 443, memfd_secret: 447 },
};

/** The newest system call that these rules were written for (removexattrat): those after it do not exist. */
export const LAST_KNOWN = 466;

/** Errors, by their numbers. */
export const ERRNO = { EPERM: 1, ENOMEM: 12, EINVAL: 22, ENOSYS: 38, EAFNOSUPPORT: 97 } as const;
export type Errno = keyof typeof ERRNO;

/** What is refused whatever it is asked for. */
export const REFUSED: Readonly<Partial<Record<Errno, readonly string[]>>> = {
  // As on a kernel without them: programs have another way. io_uring makes sockets by itself; clone3 says what it
  // makes in memory, where no filter sees it; memfd_secret and vmsplice hold memory that counts nowhere, keys and
  // fanotify what counts by user.
  ENOSYS: [
    ...['clone3', 'io_uring_setup', 'io_uring_enter', 'io_uring_register', 'memfd_secret', 'userfaultfd'],
    ...['add_key', 'request_key', 'keyctl', 'fanotify_init', 'vmsplice'],
  ],
  // As to anybody who is not root. Most ask for a privilege as well, which nobody in a sandbox has.
  EPERM: [
    ...['mount', 'umount2', 'pivot_root', 'open_tree', 'move_mount', 'fsopen', 'fsconfig', 'fsmount'],
    ...['fspick', 'mount_setattr', 'open_by_handle_at', 'quotactl', 'quotactl_fd', 'swapon', 'swapoff'],
    ...['acct', 'reboot', 'kexec_load', 'kexec_file_load', 'init_module', 'finit_module', 'delete_module'],
    ...['bpf', 'perf_event_open', 'syslog', 'iopl', 'ioperm', 'settimeofday', 'clock_settime'],
  ],
};

/**
 * What is refused for one of its arguments, counted from 0, of which the kernel reads 32 bits. `values`: for one of
 * these; `exceptValues`: for any other; `anyOf`: if one of these bits is set.
 */
export type ArgumentRule = {
  readonly call: string;
  readonly argument: number;
  readonly errno: Errno;
} & (
  | { readonly values: readonly number[] }
  | { readonly exceptValues: readonly number[] }
  | { readonly anyOf: number }
);

/** AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: the others lead out of the sandbox (vsock) or to code that few test. */
const FAMILIES = [1, 2, 10, 16];
/** CLONE_NEW… of namespaces: mnt, cgroup, uts, ipc, user, pid, net. In unshare there is one more, for time. */
const NAMESPACES = 0x7e02_0000;
const TIME_NAMESPACE = 0x80;
/** TIOCSTI and TIOCLINUX type for others; TIOCSETD loads line disciplines. */
const TERMINAL_TRICKS = [0x5412, 0x541c, 0x5423];

export const ARGUMENT_RULES: readonly ArgumentRule[] = [
  { call: 'socket', argument: 0, errno: 'EAFNOSUPPORT', exceptValues: FAMILIES },
  { call: 'socketpair', argument: 0, errno: 'EAFNOSUPPORT', exceptValues: FAMILIES },
  { call: 'clone', argument: 0, errno: 'EPERM', anyOf: NAMESPACES },
  { call: 'unshare', argument: 0, errno: 'EPERM', anyOf: NAMESPACES | TIME_NAMESPACE },
  { call: 'ioctl', argument: 1, errno: 'EPERM', values: TERMINAL_TRICKS },
  // Huge pages of a pool of the machine, which count as nobody's memory.
  { call: 'mmap', argument: 3, errno: 'ENOMEM', anyOf: 0x4_0000 },
  { call: 'shmget', argument: 2, errno: 'ENOMEM', anyOf: 0o4000 },
  { call: 'memfd_create', argument: 1, errno: 'EINVAL', anyOf: 4 },
];
