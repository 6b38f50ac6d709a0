import { duration, plural } from './format.js';
import { html } from './html.js';
import { Lazy } from './lazy.js';
import { barsOf } from './turns.js';

const LANES = [
  ['queue', 'in a queue'],
  ['stage', 'stages'],
  ['llm', 'LLM'],
  ['tools', 'tools'],
];
/** Rows of the table of turns that are there together, and the pixels of one. */
const ROWS = 40;
const ROW_HEIGHT = 25;
/** Parts of a bar's width; one that is too short to be seen is drawn this long. */
const WIDTH = 1000;
const LEAST = 1.5;

/** Stages as bars: what Temporal's history has of each activity. */
function stageBars(timeline, now) {
  return (timeline?.activities ?? []).flatMap(({ scheduledAt, startedAt, endedAt }) => {
    const [scheduled, started, ended] = [scheduledAt, startedAt, endedAt].map((at) =>
      at ? Date.parse(at) : null,
    );
    const begun = started ?? ended ?? now;
    return [
      { lane: 'queue', start: scheduled, end: begun },
      { lane: 'stage', start: begun, end: ended ?? now },
    ];
  });
}

/** All bars of a lane are one path: thousands cost as much as one. */
function pathOf(bars, begin, span) {
  return bars
    .map(({ start, end }) => {
      const x = ((start - begin) / span) * WIDTH;
      const width = Math.max(((end - start) / span) * WIDTH, LEAST);
      return `M${x.toFixed(2)} 0h${width.toFixed(2)}v10h${(-width).toFixed(2)}z`;
    })
    .join('');
}

const total = (bars) => bars.reduce((sum, { start, end }) => sum + end - start, 0);

/** When a rollout did what: stages, requests to the LLM and tool calls over the same time. */
export function Waterfall({ turns, timeline, record }) {
  const now = Date.now();
  const bars = [...stageBars(timeline, now), ...barsOf(turns)];
  if (record)
    bars.push({ lane: 'none', start: Date.parse(record.startedAt), end: Date.parse(record.endedAt) });
  if (bars.length === 0) return html`<p class="quiet">Nothing has begun.</p>`;
  const begin = Math.min(...bars.map(({ start }) => start));
  const span = Math.max(1, Math.max(...bars.map(({ end }) => end)) - begin);
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return html`
    <div class="waterfall">
      ${LANES.map(([lane, name]) => {
        const own = bars.filter((bar) => bar.lane === lane);
        const said = `${name}: ${duration(total(own))} in ${plural(own.length, 'bar')}`;
        return html`<div class="lane" key=${lane}>
          <span class="name">${name}</span>
          <svg viewBox=${`0 0 ${WIDTH} 10`} preserveAspectRatio="none" role="img" aria-label=${said} class=${lane}>
            <path d=${pathOf(own, begin, span)} />
          </svg>
          <span class="sum">${own.length > 0 ? duration(total(own)) : '–'}</span>
        </div>`;
      })}
      <div class="lane ticks" aria-hidden="true">
        <span class="name"></span>
        <span class="axis">${ticks.map((part) => html`<span key=${part}>${duration(part * span)}</span>`)}</span>
        <span class="sum"></span>
      </div>
    </div>
    <${Stages} timeline=${timeline} record=${record} begin=${begin} />
    ${turns.length > 0 && html`<${TurnTimes} turns=${turns} begin=${begin} span=${span} />`}
  `;
}

function Stages({ timeline, record, begin }) {
  const since = (at) => (at ? duration(Date.parse(at) - begin) : '–');
  const took = (from, to) => (from && to ? duration(Date.parse(to) - Date.parse(from)) : '–');
  if (!timeline) {
    const { initMs, runMs, evaluateMs, pausedMs = 0, queueMs, totalMs } = record?.timings ?? {};
    return html`<p>
      Temporal no longer has this rollout’s history; its record says: init ${duration(initMs)} · run ${duration(runMs)} ·
      evaluate ${duration(evaluateMs)} · paused ${duration(pausedMs)} · queues ${duration(queueMs)} · in all ${duration(totalMs)}.
    </p>`;
  }
  return html`
    <details>
      <summary>Stages as a table (${timeline.activities.length})</summary>
      <div class="scroll">
        <table>
          <thead>
            <tr><th>activity</th><th>queue</th><th>scheduled</th><th>waited</th><th>took</th><th>ended</th><th>worker</th></tr>
          </thead>
          <tbody>
            ${timeline.activities.map(
              (one, index) => html`<tr key=${index}>
                <td>${one.activity}</td>
                <td>${one.queue}</td>
                <td class="number">${since(one.scheduledAt)}</td>
                <td class="number">${took(one.scheduledAt, one.startedAt)}</td>
                <td class="number">${took(one.startedAt, one.endedAt)}</td>
                <td>${one.end ?? 'open'}${one.failure && `: ${one.failure.type ?? ''} ${one.failure.message}`}</td>
                <td>${one.worker ?? '–'}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
      ${timeline.marks.length > 0 && html`<p>${timeline.marks.map(({ at, what }) => `${what} at ${since(at)}`).join(', ')}</p>`}
    </details>
  `;
}

/** A row for each turn; those near the window are there. */
function TurnTimes({ turns, begin, span }) {
  const chunks = [];
  for (let from = 0; from < turns.length; from += ROWS) chunks.push(turns.slice(from, from + ROWS));
  const row = (turn) => {
    const bars = barsOf([turn]);
    return html`<div role="row" class="turn-row" key=${turn.index}>
      <span role="cell" class="number">${turn.index}</span>
      <span role="cell" class="number">${duration(turn.startedAt - begin)}</span>
      <span role="cell" class="number">${duration(turn.generateMs)}</span>
      <span role="cell" class="number">${duration(turn.toolMs)}</span>
      <span role="cell" class="number">${turn.sampled}</span>
      <span role="cell">${[...new Set(turn.calls.map(({ tool }) => tool))].join(', ') || '–'}</span>
      <svg viewBox=${`0 0 ${WIDTH} 10`} preserveAspectRatio="none" aria-hidden="true">
        <path class="llm" d=${pathOf(
          bars.filter(({ lane }) => lane === 'llm'),
          begin,
          span,
        )} />
        <path class="tools" d=${pathOf(
          bars.filter(({ lane }) => lane === 'tools'),
          begin,
          span,
        )} />
      </svg>
    </div>`;
  };
  return html`
    <details>
      <summary>Turns as a table (${turns.length})</summary>
      <div class="turn-times" role="table" aria-label="Times of turns" aria-rowcount=${turns.length + 1}>
        <div role="rowgroup">
          <div role="row" class="turn-row head">
            ${['turn', 'began', 'LLM', 'tools', 'sampled', 'called'].map(
              (name) => html`<span role="columnheader" key=${name}>${name}</span>`,
            )}
          </div>
        </div>
        ${chunks.map(
          (chunk) => html`<${Lazy} key=${chunk[0].index} role="rowgroup" height=${chunk.length * ROW_HEIGHT}
            content=${() => chunk.map(row)} />`,
        )}
      </div>
    </details>
  `;
}
