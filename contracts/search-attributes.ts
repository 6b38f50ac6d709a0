import { defineSearchAttributeKey } from '@temporalio/common';

/**
 * Search attributes of every rollout. SQL visibility allows 10 Keyword and 3 each of Int and Double;
 * this takes 8, 1 and 1.
 */
export const SEARCH_ATTRIBUTES = {
  policyVersion: defineSearchAttributeKey('PolicyVersion', 'INT'),
  taskKind: defineSearchAttributeKey('TaskKind', 'KEYWORD'),
  taskId: defineSearchAttributeKey('TaskId', 'KEYWORD'),
  groupId: defineSearchAttributeKey('GroupId', 'KEYWORD'),
  batchId: defineSearchAttributeKey('BatchId', 'KEYWORD'),
  stage: defineSearchAttributeKey('Stage', 'KEYWORD'),
  outcome: defineSearchAttributeKey('Outcome', 'KEYWORD'),
  reward: defineSearchAttributeKey('Reward', 'DOUBLE'),
  tenant: defineSearchAttributeKey('Tenant', 'KEYWORD'),
  host: defineSearchAttributeKey('Host', 'KEYWORD'),
} as const;
