import { get, orNull, Problem } from './api.js';
import { Conversation } from './conversation.js';
import { bytes, count, decimal, duration, moment, plural } from './format.js';
import { html } from './html.js';
import { Loaded } from './loaded.js';
import { to } from './route.js';
import { turnsOf } from './turns.js';
import { Waterfall } from './waterfall.js';

/** An open rollout is looked at again after so many milliseconds. */
const AGAIN_MS = 2_000;

/** What a part of a cancellation took, if it was measured. */
const within = (ms) => (ms === null || ms === undefined ? '' : ` (${duration(ms)})`);

/** One rollout: where it is, or its record and its conversation. */
export class Rollout extends Loaded {
  subject({ id }) {
    return id;
  }

  async load({ id }, signal) {
    const place = `/v1/rollouts/${encodeURIComponent(id)}`;
    const [answer, timeline] = await Promise.all([
      get(place, { signal }),
      orNull(get(`${place}/timeline`, { signal })),
    ]);
    const { record = null } = answer;
    const { said: before } = this.state.data?.id === id ? this.state.data : {};
    const said = record ? await trajectoryOf(record, place, signal) : await soFar(place, before, signal);
    const reads = said.sequences === before?.sequences ? before.reads : said.sequences.map(turnsOf);
    return { id, stage: answer.stage, record, timeline, said: { ...said, reads } };
  }

  every(data) {
    return data === undefined || data.record === null ? AGAIN_MS : null;
  }

  show({ stage, record, timeline, said }, { id, query, service }) {
    const { attempt, sequences, reads, silent } = said;
    const task = sequences[0]?.task;
    const chosen = Math.min(Number(query.sequence ?? 0), sequences.length - 1);
    const turns = reads.flatMap((read) => read.turns);
    return html`
      <div class="columns">
        <section aria-labelledby="facts-heading">
          <h2 id="facts-heading">${record ? 'Record' : 'Now'}</h2>
          ${record ? html`<${Facts} record=${record} />` : html`<${Now} stage=${stage} timeline=${timeline} />`}
          <${Links} id=${id} record=${record} timeline=${timeline} service=${service} />
        </section>
        ${record && html`<${Verdict} record=${record} service=${service} />`}
      </div>
      <section aria-labelledby="times-heading">
        <h2 id="times-heading">Times</h2>
        <${Waterfall} turns=${turns} timeline=${timeline} record=${record} />
      </section>
      ${
        task &&
        html`<details>
          <summary>Task <b>${task.handler}</b> ${task.id}, sampling and model</summary>
          <pre class="text">${JSON.stringify({ task, sampling: sequences[0].sampling, model: sequences[0].model }, null, 2)}</pre>
        </details>`
      }
      ${
        sequences.length > 0 &&
        html`<section aria-labelledby="conversation-heading">
          <h2 id="conversation-heading">Conversation</h2>
          ${!record && html`<p class="quiet" role="status" aria-label="Under way">${underWay(reads[chosen], timeline)}</p>`}
          ${sequences.length > 1 && html`<${Sequences} id=${id} query=${query} chosen=${chosen} reads=${reads} />`}
          <${Conversation} key=${`${attempt}:${chosen}`} sequence=${sequences[chosen]} read=${reads[chosen]} shade=${query.shade ?? 'text'} />
        </section>`
      }
      ${!record && silent && html`<p class="problem" role="alert">What was said since is not known now: ${silent}.</p>`}
      ${record && sequences.length === 0 && html`<p class="quiet">It ended before its first token: there is no trajectory.</p>`}
    `;
  }
}

async function trajectoryOf({ attempt, trajectory }, place, signal) {
  return { attempt, sequences: trajectory ? await get(`${place}/trajectory`, { signal }) : [], silent: null };
}

/** What an open rollout has recorded; what was known before, and why, while its host cannot be asked. */
async function soFar(place, before, signal) {
  try {
    const { attempt, records, sequences } = await get(`${place}/conversation`, { signal });
    const isSame = before?.attempt === attempt && before.records === records;
    return { attempt, records, sequences: isSame ? before.sequences : sequences, silent: null };
  } catch (problem) {
    if (!(problem instanceof Problem) || ![404, 409, 503].includes(problem.status)) throw problem;
    const { attempt = 1, records = 0, sequences = [] } = before ?? {};
    // Of one that has ended the record comes next.
    return { attempt, records, sequences, silent: problem.status === 503 ? problem.message : null };
  }
}

/** What an open rollout's agent does, as far as it has recorded. */
function underWay({ turns }, timeline) {
  const { stage } = timeline?.status ?? {};
  if (stage === 'paused') return 'So far; it is paused.';
  if (stage === 'evaluate') return 'To its end; it is being graded.';
  const last = turns.at(-1);
  const called =
    last?.finish === 'abort' ? [] : (last?.calls ?? []).filter((call) => call.result_status === null);
  if (called.length === 0)
    return `So far; the model is at turn ${last?.finish === 'abort' ? last.index : turns.length}.`;
  return `So far; turn ${last.index} has called ${called.map(({ tool }) => tool).join(', ')}.`;
}

const Fact = ({ name, children }) => html`<dt>${name}</dt><dd>${children}</dd>`;

function Facts({ record }) {
  const { trajectory, policyVersions } = record;
  return html`<dl class="facts">
    <${Fact} name="outcome"><${Outcome} outcome=${record.outcome} />${record.truncation && ` (${record.truncation})`}<//>
    <${Fact} name="task">${record.handler} · ${record.taskId} · sample ${record.sample}<//>
    ${record.groupId && html`<${Fact} name="group"><a href=${to(['groups', record.groupId])}>${record.groupId}</a><//>`}
    ${record.batchId && html`<${Fact} name="batch"><a href=${to(['batches', record.batchId])}>${record.batchId}</a><//>`}
    <${Fact} name="host">${record.host ?? '–'} (${record.backend ?? '–'}), attempt ${record.attempt}<//>
    <${Fact} name="policy version">${policyVersions ? [...new Set(policyVersions)].join(' to ') : '–'}<//>
    ${
      trajectory &&
      html`<${Fact} name="tokens">
        ${count(trajectory.sampledTokens)} sampled, ${count(trajectory.outputTokens)} after a prompt of
        ${' '}${count(trajectory.promptTokens)}; ${plural(trajectory.turns, 'turn')}, ${bytes(trajectory.bytes)}
      <//>`
    }
    <${Fact} name="began">${moment(record.startedAt)}, took ${duration(record.timings.totalMs)}<//>
  </dl>`;
}

/** Where an open rollout stands, as far as it can be said. */
function Now({ stage, timeline }) {
  const { status, position, startedAt } = timeline ?? {};
  return html`<dl class="facts" aria-live="polite">
    <${Fact} name="stage"><b>${status?.stage ?? stage ?? 'queued'}</b>${status?.pauseRequested && ', asked to pause'}<//>
    ${status && html`<${Fact} name="attempt">${status.attempt}${status.host && ` on ${status.host}`}<//>`}
    ${status && html`<${Fact} name="worked for">${duration(status.activeMs)}<//>`}
    ${position && html`<${Fact} name="agent">turn ${position.turn}, ${plural(position.tokens, 'token')} (last heartbeat)<//>`}
    ${status?.retried.length > 0 && html`<${Fact} name="tried again">${status.retried.join(', ')}<//>`}
    ${startedAt && html`<${Fact} name="began">${moment(startedAt)}<//>`}
    ${timeline && !status && html`<${Fact} name="note">No workflow worker answers: the stage is the last one that was listed.<//>`}
  </dl>`;
}

/** A word and a sign: color is not all that tells outcomes apart. */
export function Outcome({ outcome }) {
  const sign = { completed: '✓', truncated: '✂', cancelled: '⊘', failed: '✗' }[outcome] ?? '…';
  return html`<span class=${`outcome ${outcome}`}><span aria-hidden="true">${sign}</span> ${outcome}</span>`;
}

function Verdict({ record, service }) {
  const { reward, failure, cancel, retried } = record;
  return html`<section aria-labelledby="verdict-heading">
    <h2 id="verdict-heading">${failure ? 'Failure' : cancel ? 'Cancelled' : 'Reward'}</h2>
    ${reward && html`<${Parts} reward=${reward} />`}
    ${failure && html`<${Failure} failure=${failure} service=${service} />`}
    ${
      cancel &&
      html`<p>
        For the reason <b>${cancel.reason}</b>, in ${cancel.stage}${cancel.turn !== null && `, turn ${cancel.turn}`}. LLM request
        ${cancel.llmAborted ? ' aborted' : ' none under way'}${within(cancel.took?.llmMs)}, ${plural(cancel.processesKilled, 'process')} killed${within(cancel.took?.killMs)}, sandbox
        ${cancel.sandboxReleased ? ' released' : ' not released'}${within(cancel.took?.releaseMs)}, after ${duration(cancel.ms)}.
      </p>`
    }
    ${
      retried.length > 0 &&
      html`<details>
        <summary>Failures that were retried on the way (${retried.length})</summary>
        ${retried.map((one, index) => html`<${Failure} key=${index} failure=${one} service=${service} />`)}
      </details>`
    }
  </section>`;
}

function Parts({ reward }) {
  return html`<table class="parts">
    <thead><tr><th>part</th><th class="number">reward</th></tr></thead>
    <tbody>
      ${Object.entries(reward.parts).map(
        ([name, value]) =>
          html`<tr key=${name}><td>${name}</td><td class="number">${decimal(value)}</td></tr>`,
      )}
    </tbody>
    <tfoot><tr><th>total</th><td class="number"><b>${decimal(reward.total)}</b></td></tr></tfoot>
  </table>`;
}

function Failure({ failure, service }) {
  const { type, stage, cause, message, attempt } = failure;
  return html`<div class="failure">
    <p><b>${type}</b> in ${stage}, attempt ${attempt}; caused by the ${cause}</p>
    <pre class="text">${message}</pre>
    <p><b>What to do:</b> ${service.failures[type]?.advice ?? 'This version does not know this failure.'}</p>
  </div>`;
}

function Links({ id, record, timeline, service }) {
  const run = record?.workflowRunId ?? timeline?.workflowRunId;
  const place = `/v1/rollouts/${encodeURIComponent(id)}`;
  const workflow = [service.namespace, 'workflows', id, run].map(encodeURIComponent).join('/');
  return html`<p class="links">
    ${
      service.temporalUi && run && timeline
        ? html`<a href=${`${service.temporalUi}/namespaces/${workflow}/history`} target="_blank" rel="noopener">Temporal UI ↗</a>`
        : html`<span class="quiet">Temporal workflow ${id} (${timeline ? 'temporal.uiUrl is not set' : 'no longer remembered'})</span>`
    }
    ${' · '}<span class="quiet">API: <code>${place}</code>${record?.trajectory && html`, <code>${place}/trajectory</code>`}</span>
  </p>`;
}

function Sequences({ id, query, chosen, reads }) {
  return html`<nav aria-label="Sequences"><ul class="pills">
    ${reads.map(
      (read, index) => html`<li key=${index}>
        <a href=${to(['rollouts', id], { ...query, sequence: index, turn: '' })} aria-current=${index === chosen ? 'true' : undefined}>
          Sequence ${index} <span class="quiet">${plural(read.turns.length, 'turn')}</span>
        </a>
      </li>`,
    )}
  </ul></nav>`;
}
