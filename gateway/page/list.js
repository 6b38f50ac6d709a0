import { get } from './api.js';
import { decimal, duration, moment } from './format.js';
import { html } from './html.js';
import { Loaded } from './loaded.js';
import { Outcome } from './rollout.js';
import { requery, to } from './route.js';

const PAGE = 100;
/** The first page is looked at again after so many milliseconds. */
const AGAIN_MS = 5_000;

const STAGES = ['queued', 'run', 'paused', 'evaluate', 'ended'];
const OUTCOMES = ['completed', 'truncated', 'cancelled', 'failed'];
const FILTERS = ['outcome', 'stage', 'handler', 'batchId', 'groupId', 'text'];

const filterOf = (query) => Object.fromEntries(FILTERS.map((name) => [name, query[name] ?? '']));

/** Rollouts that match, a page of them. */
export function Rollouts({ query, service }) {
  return html`
    <${Filters} query=${query} service=${service} />
    <${Rows} query=${query} />
  `;
}

function Filters({ query, service }) {
  const changed = (event) => {
    const asked = Object.fromEntries(new FormData(event.currentTarget));
    requery({ ...asked, after: '' });
  };
  const select = (name, label, options) => html`<label>${label}
    ${' '}<select name=${name}>
      <option value="" selected=${!query[name]}>any</option>
      ${options.map((value) => html`<option key=${value} selected=${query[name] === value}>${value}</option>`)}
    </select>
  </label>`;
  const field = (name, label, hint) => html`<label>${label}
    ${' '}<input name=${name} value=${query[name] ?? ''} placeholder=${hint} autocomplete="off" spellcheck=${false} />
  </label>`;
  return html`<form class="toolbar" role="search" aria-label="Filter rollouts" onChange=${changed}
      onSubmit=${(event) => {
        event.preventDefault();
        changed(event);
      }}>
    ${select('outcome', 'Outcome', OUTCOMES)}
    ${select('stage', 'Stage', STAGES)}
    ${select('handler', 'Task kind', service.handlers)}
    ${field('batchId', 'Batch', 'whole id')}
    ${field('text', 'Id begins with', 'rollout, task, group, batch')}
    ${query.groupId && html`<input type="hidden" name="groupId" value=${query.groupId} />`}
    <a href=${to(['rollouts'])}>Clear</a>
  </form>`;
}

class Rows extends Loaded {
  subject({ query }) {
    return JSON.stringify([filterOf(query), query.after]);
  }

  load({ query }, signal) {
    return get('/v1/rollouts', { query: { ...filterOf(query), after: query.after, limit: PAGE }, signal });
  }

  every() {
    return this.props.query.after ? null : AGAIN_MS;
  }

  show({ rollouts, next }, { query }) {
    if (rollouts.length === 0) return html`<p class="quiet">No rollout matches.</p>`;
    return html`
      <div class="scroll">
        <table class="rows">
          <caption class="hidden">Rollouts, open ones first, then the last that ended</caption>
          <thead>
            <tr>
              <th scope="col">rollout</th><th scope="col">outcome</th><th scope="col" class="number">reward</th>
              <th scope="col">task</th><th scope="col">group</th><th scope="col">batch</th><th scope="col">host</th>
              <th scope="col">began</th><th scope="col" class="number">took</th>
            </tr>
          </thead>
          <tbody>${rollouts.map((one) => html`<${Row} key=${one.rolloutId} one=${one} />`)}</tbody>
        </table>
      </div>
      <nav aria-label="Pages" class="pages">
        ${query.after && html`<a href=${to(['rollouts'], { ...query, after: '' })}>First page</a>`}
        ${next && html`<a href=${to(['rollouts'], { ...query, after: next })}>Next ${PAGE}</a>`}
      </nav>
    `;
  }
}

function Row({ one }) {
  const { rolloutId, handler, taskId, groupId, batchId, host, reward, startedAt, closedAt } = one;
  const took = (closedAt ? Date.parse(closedAt) : Date.now()) - Date.parse(startedAt);
  return html`<tr>
    <th scope="row"><a href=${to(['rollouts', rolloutId])}>${rolloutId}</a></th>
    <td><${Outcome} outcome=${stateOf(one)} /></td>
    <td class="number">${decimal(reward)}</td>
    <td>${handler} <span class="quiet">${taskId}</span></td>
    <td>${groupId && html`<a href=${to(['groups', groupId])}>${groupId}</a>`}</td>
    <td>${batchId && html`<a href=${to(['batches', batchId])}>${batchId}</a>`}</td>
    <td>${host}</td>
    <td class="time">${moment(startedAt)}</td>
    <td class="number">${duration(took)}</td>
  </tr>`;
}

/** The outcome, the stage of an open one, or how Temporal closed one that could not say its outcome. */
export function stateOf({ outcome, stage, workflowState }) {
  if (outcome) return outcome;
  return workflowState === 'RUNNING' ? (stage ?? 'queued') : workflowState.toLowerCase();
}
