import { get, orNull } from './api.js';
import { decimal, duration, plural } from './format.js';
import { Component, html } from './html.js';
import { Lazy } from './lazy.js';
import { stateOf } from './list.js';
import { Loaded } from './loaded.js';
import { Outcome } from './rollout.js';
import { to } from './route.js';
import { turnsOf } from './turns.js';

const AGAIN_MS = 3_000;
/** Of each sample: turns that are shown, and characters of each. */
const MOST_TURNS = 40;
const MOST_TEXT = 700;

/** The samples of one task beside each other. */
export class Group extends Loaded {
  subject({ id }) {
    return id;
  }

  async load({ id }, signal) {
    const [group, { rollouts }] = await Promise.all([
      orNull(get(`/v1/groups/${encodeURIComponent(id)}`, { signal })),
      get('/v1/rollouts', { query: { groupId: id, limit: 1000 }, signal }),
    ]);
    return { group, samples: samplesOf(group, rollouts) };
  }

  every(data) {
    return data?.group?.done ? null : AGAIN_MS;
  }

  show({ group, samples }) {
    return html`
      <p>
        ${
          group === null
            ? 'No workflow of this group is known: its rollouts were begun one by one. These are listed.'
            : group.done
              ? html`<b>${group.verdict}</b> · mean reward ${decimal(group.rewardMean)} · ${plural(group.counted, 'sample')} count ·
                ${' '}${group.handler} ${group.taskId} · versions ${[...new Set(group.versions ?? ['–'])].join(' to ')}
                ${group.replaced > 0 && ` · ${group.replaced} replaced`}${group.problem && ` · ${group.problem}`}`
              : html`<b>open</b> · ${group.open} open, ${group.ended.length} ended`
        }
        ${group?.batchId && html` · batch <a href=${to(['batches', group.batchId])}>${group.batchId}</a>`}
      </p>
      <div class="side-by-side" role="list" aria-label="Samples" tabindex="0">
        ${samples.map((sample) => html`<${Sample} key=${sample.rolloutId} sample=${sample} />`)}
      </div>
    `;
  }
}

/** What the group says of those that ended, and what lists say of the others. */
function samplesOf(group, listed) {
  const known = group?.samples ?? group?.ended ?? listed.filter(({ outcome }) => outcome !== null);
  const ended = new Map(known.map((one) => [one.rolloutId, one]));
  const open = new Map(listed.map((one) => [one.rolloutId, one]));
  const ids = [...new Set([...ended.keys(), ...open.keys()])];
  return ids
    .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))
    .map((rolloutId) => {
      const { outcome, reward = null, shaped = null, train, tokens = null } = ended.get(rolloutId) ?? {};
      const state = outcome ?? stateOf(open.get(rolloutId));
      return { rolloutId, state, reward, shaped, train, tokens, ended: outcome !== undefined };
    });
}

function Sample({ sample: { rolloutId, state, reward, shaped, train, tokens, ended } }) {
  const heading = `sample-${rolloutId}`;
  const figures = [
    `reward ${decimal(reward)}`,
    shaped !== null && shaped !== reward ? `shaped ${decimal(shaped)}` : null,
    tokens === null ? null : plural(tokens, 'token'),
    train === false ? 'not trained on' : null,
  ].filter(Boolean);
  return html`<section role="listitem" aria-labelledby=${heading} class="sample">
    <h3 id=${heading}><a href=${to(['rollouts', rolloutId])}>${rolloutId}</a></h3>
    <p><${Outcome} outcome=${state} /> <span class="quiet">${figures.join(' · ')}</span></p>
    ${ended && html`<${Lazy} height=${400} content=${() => html`<${Talk} id=${rolloutId} />`} />`}
  </section>`;
}

class Talk extends Loaded {
  subject({ id }) {
    return id;
  }

  async load({ id }, signal) {
    const place = `/v1/rollouts/${encodeURIComponent(id)}/trajectory`;
    const sequences = await get(place, { signal });
    return sequences.flatMap((sequence) => turnsOf(sequence).turns);
  }

  show(turns, { id }) {
    return html`
      <ol class="talk" start="0">
        ${turns.slice(0, MOST_TURNS).map(
          (turn, at) => html`<li key=${at}>
            <p class="quiet"><a href=${to(['rollouts', id], { turn: turn.index })}>turn ${turn.index}</a>
              ${' '}${plural(turn.sampled, 'token')} · ${duration(turn.generateMs + turn.toolMs)}</p>
            <${Clipped} text=${turn.message?.content ?? ''} />
            ${turn.after.map((message, index) => html`<${Clipped} key=${index} role=${message.role} text=${message.content} />`)}
          </li>`,
        )}
      </ol>
      ${turns.length > MOST_TURNS && html`<p><a href=${to(['rollouts', id])}>and ${turns.length - MOST_TURNS} more turns</a></p>`}
    `;
  }
}

class Clipped extends Component {
  render({ text, role = 'assistant' }) {
    return html`<pre class=${`text ${role}`}>${text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text}</pre>`;
  }
}
