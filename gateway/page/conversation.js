import { count, decimal, duration, plural } from './format.js';
import { Component, html } from './html.js';
import { Lazy } from './lazy.js';
import { requery, route } from './route.js';
import { Legend, SHADES, TokenLine, Tokens } from './tokens.js';

/** Characters of one text that are shown at first. */
const MOST_TEXT = 6_000;
/** Tokens of a prompt that is open at first: all rollouts of a batch have the long ones. */
const SHORT_PROMPT = 200;
/** Pixels of a turn that was not there yet. */
const GUESS = 260;
/** Where a turn that is gone to begins, below the toolbar; as `scroll-margin-top` of the style. */
const TOP = 70;

/** A text as it is, whatever it says; long ones whole when asked for. */
class Text extends Component {
  state = { whole: false };

  render({ text }, { whole }) {
    if (whole || text.length <= MOST_TEXT) return html`<pre class="text">${text}</pre>`;
    return html`
      <pre class="text">${text.slice(0, MOST_TEXT)}…</pre>
      <button type="button" onClick=${() => this.setState({ whole: true })}>
        Show all ${count(text.length)} characters
      </button>
    `;
  }
}

const Message = ({ role, content }) => html`
  <div class=${`message ${role}`}>
    <h4 class="role">${role}</h4>
    <${Text} text=${content} />
  </div>
`;

function Call({ call }) {
  const { tool, arguments: given, call_status: read, result_status: ended, exit_code: code, ms } = call;
  const entries = Object.entries(given);
  const bad = read !== 'ok' || (ended !== null && ended !== 'ok') || (code !== null && code !== 0);
  const told = [
    read === 'ok' ? null : `not run: ${read}`,
    ended,
    code === null ? null : `exit code ${code}`,
    ms === null ? null : duration(ms),
  ].filter((part) => part !== null);
  return html`
    <div class=${`call ${bad ? 'bad' : ''}`}>
      <p class="role">call of <b>${tool}</b> <span class="quiet">${told.join(' · ')}</span></p>
      ${entries.map(
        ([name, value]) => html`<div class="argument" key=${name}>
          <span class="name">${name}</span>
          <${Text} text=${typeof value === 'string' ? value : JSON.stringify(value, null, 2)} />
        </div>`,
      )}
    </div>
  `;
}

/** One turn; `view` has the sequence's tokens and how they are shaded. */
function TurnBody({ turn, view }) {
  if (view.shade === 'text') {
    return html`
      ${turn.message && html`<${Message} ...${turn.message} />`}
      ${turn.calls.map((call) => html`<${Call} key=${call.call_id} call=${call} />`)}
      ${turn.after.map((message, index) => html`<${Message} key=${index} ...${message} />`)}
    `;
  }
  const part = (what, [start, end], key) =>
    start < end &&
    html`<div class="message ${what === 'sampled' ? 'assistant' : 'tool'}" key=${key}>
      <h4 class="role">${what}</h4>
      <${Tokens} key=${view.key} ...${view} of=${view.output} where="output token" start=${start} end=${end}
        label=${`Turn ${turn.index}, ${what}`} />
    </div>`;
  return turn.parts.flatMap((each, index) => [
    part('sampled', each.sampled, `s${index}`),
    part('observed', each.observed, `o${index}`),
  ]);
}

function Turn({ turn, view, current, last, onCurrent }) {
  const { index, finish, sampled, observed, meanLogprob, versions, generateMs, toolMs } = turn;
  const figures = [
    `${count(sampled)} sampled`,
    `${count(observed)} observed`,
    `mean log-probability ${decimal(meanLogprob)}`,
    `version ${versions.join(', ')}`,
    `LLM ${duration(generateMs)}`,
    `tools ${duration(toolMs)}`,
    finish === 'stop' ? null : finish === 'length' ? 'cut at a limit' : 'broken off',
  ].filter(Boolean);
  return html`<${Lazy}
    tag="article"
    class="turn"
    id=${`turn-${index}`}
    height=${GUESS}
    tabindex=${current ? 0 : -1}
    aria-label=${`Turn ${index} of ${last}`}
    onFocus=${() => onCurrent(index)}
    content=${() => html`
      <header><h3>Turn ${index}</h3> <span class="quiet">${figures.join(' · ')}</span></header>
      <${TurnBody} turn=${turn} view=${view} />
    `}
  />`;
}

/**
 * A sequence: its prompt, and its turns, of which those near the window are there. Up and down (or k and j) go from turn
 * to turn, Home and End to the first and the last.
 */
export class Conversation extends Component {
  state = {
    current: Math.min(Number(route().query.turn ?? 0), Math.max(0, this.props.read.turns.length - 1)),
    textProblem: null,
  };

  #going;

  componentDidMount() {
    if (route().query.turn !== undefined) this.#goTo(this.state.current);
  }

  /**
   * Turns above it take their real heights as they come near, and tokens get their texts: it is kept where it is until
   * the reader does something else.
   */
  #goTo(index) {
    this.setState({ current: index });
    const turn = document.getElementById(`turn-${index}`);
    turn.focus({ preventScroll: true });
    const going = new AbortController();
    this.#going?.abort();
    this.#going = going;
    for (const act of ['wheel', 'touchmove', 'pointerdown', 'keydown', 'focusin']) {
      addEventListener(act, () => going.abort(), { signal: going.signal, passive: true, capture: true });
    }
    const align = () => {
      const there = Math.abs(turn.getBoundingClientRect().top - TOP) < 4;
      if (!there) turn.scrollIntoView({ block: 'start' });
    };
    const resized = new ResizeObserver(align);
    resized.observe(document.body);
    going.signal.addEventListener('abort', () => resized.disconnect());
    align();
  }

  componentWillUnmount() {
    this.#going?.abort();
  }

  #keys = (event) => {
    if (!event.target.matches('article.turn') || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.props.read.turns.length - 1;
    const { current } = this.state;
    const next = {
      ArrowDown: current + 1,
      j: current + 1,
      ArrowUp: current - 1,
      k: current - 1,
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.#goTo(Math.min(Math.max(next, 0), last));
  };

  #toTurn = (event) => {
    event.preventDefault();
    const asked = Number(new FormData(event.target).get('turn'));
    this.#goTo(Math.min(Math.max(asked, 0), this.props.read.turns.length - 1));
  };

  #texts = (textProblem) => {
    if (this.state.textProblem === null) this.setState({ textProblem });
  };

  render({ sequence, read, shade }, { current, textProblem }) {
    const { prompt, turns } = read;
    const { input_ids, output_ids, logprobs, loss_mask, policy_versions, model } = sequence;
    const view = {
      key: `${sequence.rollout_id}:${sequence.sequence_index}`,
      shade,
      hash: model.tokenizer_hash,
      onProblem: this.#texts,
      output: { ids: output_ids, logprobs, mask: loss_mask, versions: policy_versions },
    };
    const last = turns.length - 1;
    return html`
      <div class="toolbar">
        <fieldset class="choice">
          <legend>Show</legend>
          ${Object.entries(SHADES).map(
            ([name, label]) => html`<label key=${name}>
              <input type="radio" name="shade" value=${name} checked=${shade === name}
                onChange=${() => requery({ shade: name === 'text' ? '' : name })} />
              ${label}
            </label>`,
          )}
        </fieldset>
        <form onSubmit=${this.#toTurn}>
          <label>Turn <input name="turn" type="number" min="0" max=${last} placeholder=${current} size="5" /></label>
          ${' '}<span class="quiet">of ${plural(turns.length, 'turn')}</span> <button>Go</button>
        </form>
        ${shade !== 'text' && html`<${Legend} shade=${shade} /><${TokenLine} />`}
      </div>
      ${textProblem && shade !== 'text' && html`<p class="problem" role="alert">Token ids are shown: ${textProblem.message}.</p>`}
      <details class="prompt" open=${input_ids.length <= SHORT_PROMPT}>
        <summary><b>Prompt</b> <span class="quiet">${plural(input_ids.length, 'token')}</span></summary>
        ${
          shade === 'text'
            ? prompt.map((message, index) => html`<${Message} key=${index} ...${message} />`)
            : html`<${Tokens} ...${view} of=${{ ids: input_ids }} where="prompt token" start=${0} end=${input_ids.length} label="Prompt" />`
        }
      </details>
      <div role="feed" aria-label="Turns" onKeyDown=${this.#keys}>
        ${turns.map(
          (turn) => html`<${Turn} key=${turn.index} turn=${turn} view=${view} last=${last}
            current=${turn.index === current} onCurrent=${(index) => index !== this.state.current && this.setState({ current: index })} />`,
        )}
      </div>
    `;
  }
}
