import type { LlmServer } from '../contracts/llm.ts';
import {
  type ModelFacts,
  type PoolInput,
  type PoolMember,
  type PoolState,
  versionOf,
} from '../contracts/pool.ts';

/*
 * What changes in a pool, as functions of its state. Pure. Each change makes a later epoch, so that whoever holds an
 * older state can be told from one who holds this.
 */

/** A pool without servers. Its epochs begin at the time, so that they go on growing over a pool that was ended. */
export function emptyPool({ pool, leaseSeconds }: PoolInput, now: number): PoolState {
  return { pool, epoch: now, members: [], floor: 0, leaseSeconds, workers: [] };
}

/** The server with this address in place of what was known of it, or as a new one. */
export function withMember(state: PoolState, member: PoolMember): PoolState {
  const at = state.members.findIndex(({ server }) => server.url === member.server.url);
  const members = at < 0 ? [...state.members, member] : state.members.with(at, member);
  return { ...state, epoch: state.epoch + 1, members };
}

export function withoutMember(state: PoolState, url: string): PoolState {
  const members = state.members.filter(({ server }) => server.url !== url);
  return { ...state, epoch: state.epoch + 1, members };
}

/** Changes some servers at once, so that nobody sees one without the others. */
export function changed(
  state: PoolState,
  urls: readonly string[],
  change: (member: PoolMember) => PoolMember,
): PoolState {
  const members = state.members.map((member) => (urls.includes(member.server.url) ? change(member) : member));
  return { ...state, epoch: state.epoch + 1, members };
}

export function withFloor(state: PoolState, floor: number): PoolState {
  return { ...state, epoch: state.epoch + 1, floor };
}

/** A server that samples with these weights from now on. */
export function serving(member: PoolMember, policyVersion: number): PoolMember {
  const facts = { ...member.facts, version: String(policyVersion) };
  const server = { ...member.server, policyVersion };
  return { ...member, server, facts, state: 'active', why: null, loading: null };
}

export function draining(member: PoolMember, why: string): PoolMember {
  return { ...member, state: 'draining', why };
}

export function out(member: PoolMember, why: string): PoolMember {
  return { ...member, state: 'out', why, loading: null };
}

/** Servers of a label, those that are out included: a swap may bring them back. */
export function labelled({ members }: PoolState, label: string): PoolMember[] {
  return members.filter(({ labels }) => labels.includes(label));
}

/**
 * Why a server cannot join with these labels, as one sentence for each difference from the servers that have one of
 * them: those of a label sample the same model. Names of models may differ between versions, whose folders or files
 * they often are. `version` is what the servers of a label are to sample with, if it is not what they do now.
 */
export function differences(
  state: PoolState,
  { server, facts, labels }: { server: LlmServer; facts: ModelFacts; labels: readonly string[] },
  version?: number,
): string[] {
  const found: string[] = [];
  const { policyVersion } = server;
  if (facts.version !== null && /^\d+$/.test(facts.version) && Number(facts.version) !== policyVersion) {
    found.push(`policyVersion: the server itself says ${facts.version}, not ${policyVersion}`);
  }
  const before = state.members.find((member) => member.server.url === server.url);
  if (before?.server.policyVersion === policyVersion && before.facts.version !== facts.version) {
    const says = `the server called it "${before.facts.version}" and now says "${facts.version}"`;
    found.push(`policyVersion: ${policyVersion}: ${says}; was it started again with other weights?`);
  }
  for (const label of labels) {
    const others = state.members.filter(
      (member) =>
        member.state === 'active' && member.labels.includes(label) && member.server.url !== server.url,
    );
    const due = version ?? versionOf({ members: others }, label) ?? policyVersion;
    if (due !== policyVersion) {
      found.push(`policyVersion: ${policyVersion}, the others of "${label}" sample with ${due}`);
    }
    const [one] = others;
    if (one) found.push(...unlike(server, facts, one));
  }
  return [...new Set(found)];
}

function unlike(
  { policyVersion }: LlmServer,
  facts: ModelFacts,
  { server, facts: its }: PoolMember,
): string[] {
  const found: string[] = [];
  const differs = (a: unknown, b: unknown) => a !== null && b !== null && a !== b;
  if (policyVersion === server.policyVersion && facts.model !== its.model) {
    found.push(`model: "${facts.model}", ${server.url} serves "${its.model}"`);
  }
  if (differs(facts.vocabularySize, its.vocabularySize)) {
    found.push(`vocabulary: ${facts.vocabularySize} tokens, ${server.url} has ${its.vocabularySize}`);
  }
  if (differs(facts.parameterCount, its.parameterCount)) {
    found.push(`parameters: ${facts.parameterCount}, ${server.url} has ${its.parameterCount}`);
  }
  if (facts.tokenizerHash !== its.tokenizerHash) {
    found.push(`tokenizer: the probe text is encoded otherwise than by that of ${server.url}`);
  }
  if (facts.templateHash !== its.templateHash) {
    found.push(`chat template: another one than that of ${server.url}`);
  }
  return found;
}
