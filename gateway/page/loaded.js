import { pause } from './api.js';
import { Component, html } from './html.js';

/**
 * A part of the page that shows what it has asked for. Its kinds say what (`load(props, signal)`), when that is another
 * thing (`subject(props)`), how long until it is asked for again (`every(data)`, null: never), and how it looks
 * (`show(data, props)`).
 */
export class Loaded extends Component {
  state = { data: undefined, problem: null };
  #asking;

  componentDidMount() {
    this.#ask();
  }

  componentDidUpdate(before) {
    if (this.subject(before) !== this.subject(this.props)) this.reload({ forget: true });
  }

  componentWillUnmount() {
    this.#asking?.abort();
  }

  /** Asks now. */
  reload({ forget = false } = {}) {
    if (forget) this.setState({ data: undefined, problem: null });
    this.#ask();
  }

  async #ask() {
    this.#asking?.abort();
    this.#asking = new AbortController();
    const { signal } = this.#asking;
    while (!signal.aborted) {
      try {
        const data = await this.load(this.props, signal);
        if (!signal.aborted) this.setState({ data, problem: null });
      } catch (problem) {
        if (signal.aborted) return;
        this.setState({ problem });
      }
      const ms = this.every(this.state.data);
      if (ms === null) return;
      await pause(ms, signal);
      while (document.hidden && !signal.aborted) await pause(500, signal);
    }
  }

  subject() {
    return '';
  }

  every() {
    return null;
  }

  render(props, { data, problem }) {
    return html`
      ${problem && html`<p class="problem" role="alert">${problem.message}</p>`}
      ${data === undefined ? !problem && html`<p class="quiet" role="status">Loading…</p>` : this.show(data, props)}
    `;
  }
}
