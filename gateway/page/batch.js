import { events, get, orNull } from './api.js';
import { decimal, duration, moment, plural } from './format.js';
import { html } from './html.js';
import { Loaded } from './loaded.js';
import { to } from './route.js';

const AGAIN_MS = 5_000;

/** Batches that Temporal remembers. */
export class Batches extends Loaded {
  load(_, signal) {
    return get('/v1/batches', { signal });
  }

  every() {
    return AGAIN_MS;
  }

  show({ batches }) {
    if (batches.length === 0)
      return html`<p class="quiet">There is no batch: trainers begin them over HTTP.</p>`;
    return html`<div class="scroll"><table class="rows">
      <thead><tr><th scope="col">batch</th><th scope="col">workflow</th><th scope="col">began</th><th scope="col" class="number">took</th></tr></thead>
      <tbody>
        ${batches.map(
          ({ batchId, workflowState, startedAt, closedAt }) => html`<tr key=${batchId}>
            <th scope="row"><a href=${to(['batches', batchId])}>${batchId}</a></th>
            <td>${workflowState.toLowerCase()}</td>
            <td class="time">${moment(startedAt)}</td>
            <td class="number">${duration((closedAt ? Date.parse(closedAt) : Date.now()) - Date.parse(startedAt))}</td>
          </tr>`,
        )}
      </tbody>
    </table></div>`;
  }
}

/** A batch as it goes: how it stands, and its groups by the events of the batch as they come. */
export class Batch extends Loaded {
  #following;

  componentDidMount() {
    super.componentDidMount();
    this.#follow();
  }

  componentDidUpdate(before) {
    super.componentDidUpdate(before);
    if (before.id !== this.props.id) this.#follow();
  }

  componentWillUnmount() {
    super.componentWillUnmount();
    this.#following?.abort();
  }

  async #follow() {
    this.#following?.abort();
    this.#following = new AbortController();
    const { signal } = this.#following;
    this.setState({ happened: [], cut: null });
    const place = `/v1/batches/${encodeURIComponent(this.props.id)}/events`;
    try {
      for await (const event of events(place, { last: 'ended', signal })) {
        this.setState(({ happened }) => ({ happened: [...happened, event] }));
        if (event.kind === 'ended') this.reload();
      }
    } catch (cut) {
      if (!signal.aborted) this.setState({ cut });
    }
  }

  subject({ id }) {
    return id;
  }

  load({ id }, signal) {
    return orNull(get(`/v1/batches/${encodeURIComponent(id)}`, { signal }));
  }

  every(data) {
    return data === null || data?.done ? null : AGAIN_MS;
  }

  show(batch, { id }) {
    const rollouts = html`<p><a href=${to(['rollouts'], { batchId: id })}>Its rollouts</a></p>`;
    if (batch === null) {
      return html`<p>No workflow of this batch is known: its rollouts were begun one by one, as by <code>rollouts run</code>.</p>${rollouts}`;
    }
    const { counts, wanted, end } = batch;
    const { happened = [], cut } = this.state;
    const admitted = batch.done ? batch.groups : batch.admitted;
    const dropped = Object.entries(counts.dropped).map(([verdict, number]) => `${number} ${verdict}`);
    return html`
      <div class="columns">
        <section aria-labelledby="stands-heading">
          <h2 id="stands-heading">How it stands</h2>
          <p><label>${batch.done ? html`<b>${end}</b>` : html`<b>open</b>`}: ${admitted.length} of ${plural(wanted, 'group')}
            ${' '}<progress max=${wanted} value=${admitted.length}>${admitted.length} of ${wanted}</progress></label></p>
          <dl class="facts">
            <dt>begun</dt><dd>${counts.started}, ${counts.carried} taken over, ${counts.open} open</dd>
            <dt>dropped</dt><dd>${dropped.join(', ') || '–'}</dd>
            <dt>mean reward</dt><dd>${decimal(counts.rewardMean)} over all groups that ended</dd>
            <dt>tokens of a sample</dt>
            <dd>${decimal(counts.tokensAdmitted, 0)} admitted, ${decimal(counts.tokensDiscarded, 0)} discarded</dd>
          </dl>
          ${rollouts}
        </section>
        <section aria-labelledby="groups-heading">
          <h2 id="groups-heading">Groups, as they come</h2>
          ${cut && html`<p class="problem" role="alert">${cut.message}</p>`}
          <${Groups} happened=${happened} />
        </section>
      </div>
    `;
  }
}

/** The last that happened to each group, the newest first. */
function Groups({ happened }) {
  const last = new Map();
  for (const event of happened) {
    if (!event.groupId) continue;
    last.delete(event.groupId);
    last.set(event.groupId, event);
  }
  const state = { started: 'open', admitted: 'completed', dropped: 'cancelled' };
  const rows = [...last.values()].reverse();
  return html`
    <p class="hidden" role="status">${plural(happened.length, 'event')}</p>
    <div class="scroll tall" tabindex="0" role="region" aria-label="Groups"><table class="rows">
      <thead><tr><th scope="col">group</th><th scope="col">state</th><th scope="col">why</th><th scope="col">at</th></tr></thead>
      <tbody>
        ${rows.map(
          ({ groupId, kind, why, at }) => html`<tr key=${groupId}>
            <th scope="row"><a href=${to(['groups', groupId])}>${groupId}</a></th>
            <td><span class=${`outcome ${state[kind]}`}>${kind}</span></td>
            <td>${why ?? ''}</td>
            <td class="time">${moment(at)}</td>
          </tr>`,
        )}
      </tbody>
    </table></div>
  `;
}
