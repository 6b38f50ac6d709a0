import { Component, createRef, h } from './html.js';

/** How far beyond the window things are there already. */
const AHEAD = '900px';

const watched = new WeakMap();
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) watched.get(entry.target)?.(entry.isIntersecting);
  },
  { rootMargin: AHEAD },
);

/**
 * An element whose content is there only while it is near the window: long rollouts have more tokens than a browser
 * likes to have elements. `height` (pixels) is what is guessed before it was there for the first time; whatever has the
 * keyboard's focus stays.
 */
export class Lazy extends Component {
  #ref = createRef();
  #height = this.props.height;
  state = { near: false };

  componentDidMount() {
    watched.set(this.#ref.current, (near) => this.#move(near));
    observer.observe(this.#ref.current);
  }

  componentWillUnmount() {
    observer.unobserve(this.#ref.current);
  }

  #move(near) {
    const element = this.#ref.current;
    if (near === this.state.near || (!near && element.contains(document.activeElement))) return;
    if (!near) this.#height = element.offsetHeight;
    this.setState({ near });
  }

  render({ tag = 'div', height: _, content, ...rest }, { near }) {
    const style = near ? {} : { minHeight: `${this.#height}px` };
    return h(tag, { ...rest, style, ref: this.#ref }, near ? content() : null);
  }
}
