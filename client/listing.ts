import { createHash } from 'node:crypto';
import type { Client, WorkflowExecutionInfo } from '@temporalio/client';
// Not among the package's public names; what a raw answer of the service means is the SDK's business all the same.
import { executionInfoFromRaw } from '@temporalio/client/lib/helpers.js';
import { defaultFailureConverter, defaultPayloadConverter } from '@temporalio/common';
import { RolloutError } from '../contracts/failures.ts';
import { type RolloutFilter, visibilityQuery } from '../contracts/filter.ts';
import { SEARCH_ATTRIBUTES as ATTRIBUTES } from '../contracts/search-attributes.ts';

/** A rollout as a list shows it; `outcome` is null while it is open. */
export interface RolloutListing {
  readonly rolloutId: string;
  readonly handler: string | null;
  readonly stage: string | null;
  readonly outcome: string | null;
  readonly reward: number | null;
  readonly taskId: string | null;
  readonly groupId: string | null;
  readonly batchId: string | null;
  readonly host: string | null;
  /** Oldest policy version among its tokens, as far as it is known. */
  readonly policyVersion: number | null;
  readonly startedAt: string;
  readonly closedAt: string | null;
  /** Temporal's own state of the workflow, e.g. RUNNING, COMPLETED, FAILED, TERMINATED. */
  readonly workflowState: string;
}

/** What lists show of a workflow. */
export function listingOf(execution: Omit<WorkflowExecutionInfo, 'raw'>): RolloutListing {
  const attributes = execution.typedSearchAttributes;
  return {
    rolloutId: execution.workflowId,
    handler: attributes.get(ATTRIBUTES.taskKind) ?? null,
    stage: attributes.get(ATTRIBUTES.stage) ?? null,
    outcome: attributes.get(ATTRIBUTES.outcome) ?? null,
    reward: attributes.get(ATTRIBUTES.reward) ?? null,
    taskId: attributes.get(ATTRIBUTES.taskId) ?? null,
    groupId: attributes.get(ATTRIBUTES.groupId) ?? null,
    batchId: attributes.get(ATTRIBUTES.batchId) ?? null,
    host: attributes.get(ATTRIBUTES.host) ?? null,
    policyVersion: attributes.get(ATTRIBUTES.policyVersion) ?? null,
    startedAt: execution.startTime.toISOString(),
    closedAt: execution.closeTime?.toISOString() ?? null,
    workflowState: execution.status.name,
  };
}

/** One page of a list, and what asks for the next one; null after the last. */
export interface ListingPage {
  readonly rollouts: RolloutListing[];
  readonly next: string | null;
}

/**
 * Rollouts that match, page by page. The SDK's own list does not tell where a page ends, so the service is asked.
 * @throws RolloutError InvalidRequest if `after` is none that was given
 */
export async function listingPage(
  temporal: Client,
  filter: RolloutFilter,
  { size, after }: { readonly size: number; readonly after?: string },
): Promise<ListingPage> {
  const { namespace } = temporal.options;
  const { executions, nextPageToken } = await temporal.workflowService.listWorkflowExecutions({
    namespace,
    query: visibilityQuery(filter),
    pageSize: size,
    nextPageToken: after === undefined ? null : tokenOf(after),
  });
  const infos = await Promise.all(
    executions.map((raw) => {
      // Of no interest here, and it may need a codec. A copy would lose the defaults of absent fields.
      raw.memo = null;
      return executionInfoFromRaw(raw, CONVERTER, null, namespace);
    }),
  );
  return {
    rollouts: infos.map(listingOf),
    next: nextPageToken.length > 0 ? nextOf(Buffer.from(nextPageToken)) : null,
  };
}

const CONVERTER = {
  payloadConverter: defaultPayloadConverter,
  failureConverter: defaultFailureConverter,
  payloadCodecs: [],
};

/** The service's own mark of where a page ended, with a checksum: it answers one that is none with an unknown error. */
function nextOf(token: Buffer): string {
  return `${sumOf(token)}.${token.toString('base64url')}`;
}

function tokenOf(after: string): Buffer {
  const [sum, text = ''] = after.split('.');
  const token = Buffer.from(text, 'base64url');
  if (sumOf(token) === sum) return token;
  throw new RolloutError('InvalidRequest', 'after: not what an earlier page gave as next');
}

function sumOf(token: Buffer): string {
  return createHash('sha256').update(token).digest('base64url').slice(0, 8);
}
