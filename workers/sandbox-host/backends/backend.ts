import type { SandboxKind, SandboxSpec } from '../../../contracts/sandbox.ts';
import type { SandboxCgroup } from '../limits/cgroup.ts';
import type { ProcessInfo } from '../processes.ts';

/** What a backend keeps apart, for people. */
export interface Guarantees {
  readonly network: boolean;
  readonly files: boolean;
  readonly processes: boolean;
  /** What runs inside has no privilege on the host, and gets none by setuid programs. */
  readonly user: boolean;
  /** Of what the kernel offers, what runs inside reaches only what ordinary programs need. */
  readonly systemCalls: boolean;
  readonly limits: string;
}

/** Whether a backend works on this machine. */
export type Probe =
  /** `found`: what program it is that works, where there are several. */
  { readonly works: true; readonly found?: string } | { readonly works: false; readonly why: string };

/** A sandbox to be made. The folders exist, are empty, and belong to it alone. */
export interface Creation {
  readonly sandboxId: string;
  /** Host folder that becomes the agent's workspace. */
  readonly workspaceDir: string;
  /** Host folder whose files the agent can read but not write: how commands reach its shells. */
  readonly controlDir: string;
  readonly spec: SandboxSpec;
  /** A sandbox on whose files this one works: they are one user. */
  readonly besides?: Pick<Handle, 'ownerUid'>;
  /** Further folders of the host, as the host itself wants them shown; `process` shows them where they are. */
  readonly mounts?: readonly Mount[];
  /** What runs inside are the host's own programs, whatever image is set. */
  readonly hostPrograms?: boolean;
  /** To be called with the first process that holds it up as soon as there is one. */
  readonly started?: (process: ProcessInfo) => void;
}

/** A folder or file of the host, shown inside. */
export interface Mount {
  readonly source: string;
  readonly target: string;
  readonly writable?: boolean;
}

/** A sandbox that runs. */
export interface Handle {
  readonly sandboxId: string;
  /** The workspace and the control folder as seen inside. */
  readonly workspace: string;
  readonly control: string;
  /** Processes of the host whose death ends the sandbox; recorded for the next host to clear. */
  readonly anchors: readonly ProcessInfo[];
  readonly spec: SandboxSpec;
  /** User id of the host that owns what runs inside; null: the host's own. Terminals are given to it. */
  readonly ownerUid: number | null;
  /**
   * The sandbox's own list of processes (its `/proc`), as the host reaches it. Where it does not, `processes` is
   * asked instead, which takes longer.
   */
  readonly proc?: string;
  /** The file systems that take memory, as the host reaches them. */
  readonly memoryFolders?: readonly string[];
  /** Where there are cgroups. */
  readonly cgroup?: SandboxCgroup;
  /** Resolves when the sandbox's first process has ended, for whatever reason, with what is known. */
  readonly ended: Promise<string>;
}

/** How to start, on the host, a program that runs inside a sandbox. */
export interface Entry {
  readonly file: string;
  readonly args: string[];
  readonly env: Record<string, string>;
}

/** What is to run inside, and where. */
export interface Program {
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  /** Modes of files do not keep it from reading, or from anything. Never for what an agent can reach into. */
  readonly overModes?: 'read' | 'write';
}

/**
 * One way to isolate. Everything that differs between ways is behind this interface; errors are RolloutErrors
 * (SandboxFailed when a sandbox cannot be made).
 */
export interface Backend {
  readonly name: SandboxKind;
  readonly guarantees: Guarantees;
  /** Tries it for real. */
  probe(): Promise<Probe>;
  create(creation: Creation): Promise<Handle>;
  /** The host's side of running a program inside. Exit status and signal are those of the program. */
  enter(handle: Handle, program: Program): Entry;
  /**
   * How to run a program of the host, out of the sandbox's reach, that may read all folders that the sandbox's
   * owner has made unreadable. Absent: the host's own user may.
   */
  examine?(handle: Handle, argv: readonly string[]): Entry;
  /**
   * How to run a program of the host in the sandbox's IPC namespace, with the privileges of its user namespace.
   * Absent: it has none of its own.
   */
  enterIpc?(handle: Handle, argv: readonly string[]): Entry;
  /** All processes inside but the first. */
  processes(handle: Handle): ProcessInfo[];
  /** Every process but the first is dead when this resolves; returns how many there were. */
  killAll(handle: Handle): Promise<number>;
  /** Every process is dead when this resolves; returns how many there were. Idempotent. */
  destroy(handle: Handle): Promise<number>;
}
