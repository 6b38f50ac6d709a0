import { post } from './api.js';
import { decimal } from './format.js';
import { Component, createRef, h, html } from './html.js';
import { Lazy } from './lazy.js';

/** Ways to shade tokens. */
export const SHADES = {
  text: 'text',
  logprob: 'log-probability',
  mask: 'loss mask',
  version: 'policy version',
};

/** Least probabilities of the levels; what is below all of them is the last. */
const LEVELS = [0.9, 0.5, 0.1, 0.01];
const NAMES = ['p ≥ 0.9', 'p ≥ 0.5', 'p ≥ 0.1', 'p ≥ 0.01', 'p < 0.01'];
/** Colors of policy versions come again after so many. */
const VERSION_COLORS = 6;
/** Elements beside each other; more are made when they are near. */
const CHUNK = 400;
/** As the gateway decodes at once. */
const MOST_IDS = 20_000;

const levelOf = (logprob) => {
  const level = LEVELS.findIndex((least) => Math.exp(logprob) >= least);
  return level < 0 ? LEVELS.length : level;
};

/** What the shading means. */
export function Legend({ shade }) {
  const swatch = (className, text) => html`<li><span class=${`token ${className}`}>token</span> ${text}</li>`;
  const items = {
    logprob: [...NAMES.map((name, level) => swatch(`p${level}`, name)), swatch('given', 'not sampled')],
    mask: [swatch('m1', 'trained on (mask 1)'), swatch('given', 'not trained on (mask 0)')],
    version: [
      html`<li>each color is a version; <span class="tag">v3</span> where it begins</li>`,
      swatch('given', 'not sampled'),
    ],
  };
  return html`<ul class="legend" aria-label="What the shading means">${items[shade]}</ul>`;
}

const texts = new Map();

/** Texts of a span's tokens, asked for once. @throws Problem if no tokenizer is known */
function textsOf(hash, ids) {
  const key = `${hash}:${ids.length}:${ids.slice(0, 8)}:${ids.slice(-8)}:${ids.reduce((sum, id) => (sum * 31 + id) | 0, 0)}`;
  if (!texts.has(key)) {
    const parts = [];
    for (let start = 0; start < ids.length; start += MOST_IDS) {
      parts.push(post('/v1/tokens/texts', { tokenizerHash: hash, ids: ids.slice(start, start + MOST_IDS) }));
    }
    const asked = Promise.all(parts).then((all) => all.flatMap((part) => part.texts));
    asked.catch(() => texts.delete(key));
    texts.set(key, asked);
  }
  return texts.get(key);
}

/** Tells whoever shows it which token is looked at. */
const lookAt = (detail) => dispatchEvent(new CustomEvent('token', { detail }));

/**
 * A span of tokens of a sequence. `of` has ids, and of output also logprobs, mask and versions; positions are those of
 * the whole sequence. Left and right move over its tokens.
 */
export class Tokens extends Component {
  state = { texts: null };
  #ref = createRef();
  #at = null;

  componentDidMount() {
    const { hash, of, start, end, onProblem } = this.props;
    textsOf(hash, of.ids.slice(start, end)).then((known) => this.setState({ texts: known }), onProblem);
  }

  #tell(index) {
    const { of, where } = this.props;
    const text = this.state.texts?.[index - this.props.start];
    lookAt({
      where,
      index,
      id: of.ids[index],
      text,
      ...(of.logprobs
        ? { logprob: of.logprobs[index], mask: of.mask[index], version: of.versions[index] }
        : {}),
    });
  }

  #move = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const { start, end } = this.props;
    const from = this.#at ?? (step > 0 ? start - 1 : end);
    const at = Math.min(Math.max(from + step, start), end - 1);
    const element = this.#ref.current.querySelector(`[data-i="${at}"]`);
    if (!element) return; // of a chunk that is not there yet
    this.#ref.current.querySelector('.cursor')?.classList.remove('cursor');
    element.classList.add('cursor');
    element.scrollIntoView({ block: 'nearest' });
    this.#at = at;
    this.#tell(at);
  };

  #over = ({ target }) => {
    if (target.dataset.i !== undefined) this.#tell(Number(target.dataset.i));
  };

  #classOf(index) {
    const { of, shade } = this.props;
    if (!of.logprobs || of.mask[index] === 0) return 'token given';
    if (shade === 'logprob') return `token p${levelOf(of.logprobs[index])}`;
    if (shade === 'version') return `token v${of.versions[index] % VERSION_COLORS}`;
    return 'token m1';
  }

  #chunk(from, to) {
    const { of, shade, start } = this.props;
    const shown = [];
    for (let index = from; index < to; index++) {
      const version = of.versions?.[index];
      if (shade === 'version' && version >= 0 && (index === start || of.versions[index - 1] !== version)) {
        shown.push(h('span', { class: 'tag' }, `v${version}`));
      }
      shown.push(h('span', { class: this.#classOf(index), 'data-i': index }, this.#textOf(index)));
    }
    return shown;
  }

  #textOf(index) {
    const text = this.state.texts?.[index - this.props.start];
    if (text === undefined) return `${this.props.of.ids[index]} `;
    return text === '' ? '·' : text.replaceAll('\n', '↵\n');
  }

  render({ start, end, label }) {
    const chunks = [];
    for (let from = start; from < end; from += CHUNK) {
      const to = Math.min(from + CHUNK, end);
      const content = () => this.#chunk(from, to);
      const height = Math.ceil((to - from) / 16) * 20;
      chunks.push(
        end - start <= CHUNK
          ? html`<span key=${from}>${content()}</span>`
          : html`<${Lazy} key=${from} height=${height} content=${content} />`,
      );
    }
    return html`<div
      class="tokens"
      ref=${this.#ref}
      role="group"
      tabindex="0"
      aria-label=${`${label}, ${end - start} tokens; left and right move over them`}
      onKeyDown=${this.#move}
      onMouseOver=${this.#over}
    >${chunks}</div>`;
  }
}

/** One line about the token that is looked at. */
export class TokenLine extends Component {
  state = { token: null };
  #listen = ({ detail }) => this.setState({ token: detail });

  componentDidMount() {
    addEventListener('token', this.#listen);
  }

  componentWillUnmount() {
    removeEventListener('token', this.#listen);
  }

  render(_, { token }) {
    return html`<p class="token-line" role="status" aria-label="Token">
      ${token === null ? html`<span class="quiet">Point at a token, or move over tokens with ← and →</span>` : lineOf(token)}
    </p>`;
  }
}

function lineOf({ where, index, id, text, logprob, mask, version }) {
  const shown = text === undefined ? '' : ` ${JSON.stringify(text)}`;
  const known =
    mask === 1
      ? ` · log-probability ${decimal(logprob, 4)} (p ${decimal(Math.exp(logprob), 4)}) · mask 1 · version ${version}`
      : ' · not sampled, mask 0';
  return `${where} ${index} · id ${id}${shown}${known}`;
}
