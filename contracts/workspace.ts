import { z } from 'zod';
import { isWithoutZero, withoutZero } from './sandbox.ts';

/**
 * What the sandbox host does with the workspace of a sandbox as a whole. It happens in a fresh sandbox beside the
 * agent's, by programs of the host that the agent never could change, on files that nothing of the host is
 * mounted next to. What runs in the agent's sandbox meanwhile goes on and may be seen half done: call `kill` first
 * where that matters.
 */
const fence = z.int().min(1);

/** POST /v1/sandboxes/:id/workspace/start: `diff` compares with the workspace as it is now. Again: anew. */
export const MarkStart = z.strictObject({
  fence,
  timeoutMs: z.int().min(1).max(86_400_000).default(120_000),
});
export type MarkStart = z.input<typeof MarkStart>;

export const StartMark = z.object({
  /** Git's name for the content of the workspace. */
  tree: z.string().regex(/^[0-9a-f]{40,64}$/),
  ms: z.number(),
});
export type StartMark = z.infer<typeof StartMark>;

/**
 * POST /v1/sandboxes/:id/workspace/diff: everything that is not as it was at the start: new, changed and deleted
 * files (what .gitignore names and what lies in repositories inside the workspace included), modes and links. Left
 * out are `.git` folders, and folders without files, which git cannot hold.
 * Fails with InvalidRequest where no start was marked.
 */
export const DiffWorkspace = z.strictObject({
  fence,
  /** Only this folder of the workspace; the paths of the patch begin there. Empty: all of it. */
  folder: z
    .string()
    .max(4000)
    .refine(isWithoutZero, withoutZero)
    .refine((path) => path === '' || path.split('/').every((part) => !['', '.', '..'].includes(part)), {
      error: 'a path from the workspace, without . and ..',
    })
    .default(''),
  /** Left out: patterns of git, from `folder` on; `**` stands for any folders. */
  exclude: z.array(z.string().min(1).max(1000).refine(isWithoutZero, withoutZero)).max(100).default([]),
  /** Of the patch. */
  maxBytes: z
    .int()
    .min(1)
    .max(64 * 1024 ** 2)
    .default(16 * 1024 ** 2),
  timeoutMs: z.int().min(1).max(86_400_000).default(120_000),
});
export type DiffWorkspace = z.input<typeof DiffWorkspace>;

/** What the agent made is larger than asked for, or takes longer: its own doing, so an answer and no failure. */
const TooLarge = z.object({ status: z.literal('tooLarge'), why: z.string() });

export const WorkspaceDiff = z.discriminatedUnion('status', [
  z.object({
    status: z.literal('ok'),
    /** Base64; for `git apply --binary`. Empty if nothing was changed. */
    patch: z.string(),
    bytes: z.int(),
    sha256: z.string(),
    /** Files that it changes. */
    files: z.int(),
    /** Files whose paths are too long for git. */
    omitted: z.int(),
    ms: z.number(),
  }),
  TooLarge,
]);
export type WorkspaceDiff = z.infer<typeof WorkspaceDiff>;

/** An absolute path of the host. */
const HostFile = z.string().startsWith('/').max(4096).refine(isWithoutZero, withoutZero);

/**
 * POST /v1/sandboxes/:id/workspace/snapshot: writes the workspace, and its start if one was marked, to `file` of
 * the host: a tar archive, there whole and on disk or not at all. Its folder must exist. Sockets are left out.
 */
export const SnapshotWorkspace = z.strictObject({
  fence,
  file: HostFile,
  maxBytes: z
    .int()
    .min(1024)
    .default(8 * 1024 ** 3),
  timeoutMs: z.int().min(1).max(86_400_000).default(600_000),
});
export type SnapshotWorkspace = z.input<typeof SnapshotWorkspace>;

export const WorkspaceSnapshot = z.discriminatedUnion('status', [
  z.object({
    status: z.literal('ok'),
    file: HostFile,
    bytes: z.int(),
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
    /** Files and folders whose paths are too long for the system, which no program could name. */
    omitted: z.int(),
    ms: z.number(),
  }),
  TooLarge,
]);
export type WorkspaceSnapshot = z.infer<typeof WorkspaceSnapshot>;

/**
 * POST /v1/sandboxes/:id/workspace/restore: fills the empty workspace of a fresh sandbox from a snapshot.
 * Fails with StoreCorrupt, and nothing done, where the file is not what `sha256` says; with InvalidRequest where
 * the workspace is not empty.
 */
export const RestoreWorkspace = z.strictObject({
  fence,
  file: HostFile,
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  /** The sandbox that this one takes the place of may have had shells: those of this one say that they are new. */
  hadShells: z.boolean().default(true),
  timeoutMs: z.int().min(1).max(86_400_000).default(600_000),
});
export type RestoreWorkspace = z.input<typeof RestoreWorkspace>;

export const RestoredWorkspace = z.object({ bytes: z.int(), ms: z.number() });
export type RestoredWorkspace = z.infer<typeof RestoredWorkspace>;
