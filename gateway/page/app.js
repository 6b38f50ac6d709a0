import { get, hasToken, keepToken } from './api.js';
import { Batch, Batches } from './batch.js';
import { Group } from './group.js';
import { Component, createRef, html, render } from './html.js';
import { Rollouts } from './list.js';
import { Rollout } from './rollout.js';
import { route, to } from './route.js';

/** What is shown at a place. */
function viewOf({ path: [kind = '', id], query }, service) {
  const known = {
    '': ['Rollouts', html`<${Rollouts} query=${query} service=${service} />`],
    rollouts: ['Rollouts', html`<${Rollouts} query=${query} service=${service} />`],
    batches: ['Batches', html`<${Batches} />`],
  };
  const one = {
    rollouts: ['Rollout', () => html`<${Rollout} id=${id} query=${query} service=${service} />`],
    groups: ['Group', () => html`<${Group} id=${id} />`],
    batches: ['Batch', () => html`<${Batch} id=${id} />`],
  };
  if (id && one[kind]) return { title: `${one[kind][0]} ${id}`, view: one[kind][1]() };
  const [title, view] = known[kind] ?? ['Not found', html`<p>There is no such page.</p>`];
  return { title, view };
}

class App extends Component {
  state = { at: route(), service: null, problem: null, asksToken: false };
  #heading = createRef();

  componentDidMount() {
    addEventListener('hashchange', () => {
      const before = this.state.at.path.join('/');
      this.setState({ at: route() }, () => {
        // Whoever cannot see that another page is there hears its heading.
        if (before !== this.state.at.path.join('/')) this.#heading.current?.focus();
      });
    });
    addEventListener('token-needed', () => this.setState({ asksToken: true }));
    this.#begin();
  }

  async #begin() {
    try {
      this.setState({ service: await get('/v1/service'), problem: null, asksToken: false });
    } catch (problem) {
      this.setState({ problem });
    }
  }

  #signIn = (token) => {
    keepToken(token);
    this.#begin();
  };

  #signOut = () => {
    keepToken();
    this.setState({ service: null, asksToken: true, problem: null });
  };

  render(_, { at, service, problem, asksToken }) {
    const { title, view } = asksToken || !service ? { title: 'Rollouts', view: null } : viewOf(at, service);
    document.title = title === 'Rollouts' ? title : `${title} · Rollouts`;
    const link = (kind, name) => html`<li>
      <a href=${to([kind])} aria-current=${(at.path[0] || 'rollouts') === kind ? 'page' : undefined}>${name}</a>
    </li>`;
    return html`
      <a class="skip" href="#main" onClick=${(event) => {
        event.preventDefault();
        this.#heading.current?.focus();
      }}>To the content</a>
      <header class="top">
        <span class="product">Durable rollouts</span>
        <nav aria-label="Pages"><ul>${link('rollouts', 'Rollouts')}${link('batches', 'Batches')}</ul></nav>
        ${service?.temporalUi && html`<a href=${service.temporalUi} target="_blank" rel="noopener">Temporal UI ↗</a>`}
        ${hasToken() && html`<button type="button" onClick=${this.#signOut}>Forget the token</button>`}
      </header>
      <main id="main">
        <h1 tabindex="-1" ref=${this.#heading}>${title}</h1>
        ${asksToken ? html`<${SignIn} problem=${hasToken() ? problem : null} onToken=${this.#signIn} />` : null}
        ${!asksToken && problem && html`<p class="problem" role="alert">${problem.message}</p>`}
        ${view}
      </main>
    `;
  }
}

function SignIn({ problem, onToken }) {
  const submit = (event) => {
    event.preventDefault();
    onToken(new FormData(event.target).get('token').trim());
  };
  return html`<form class="sign-in" onSubmit=${submit}>
    <p>This gateway needs a bearer token: <code>rollouts token NAME --scopes read</code> makes one. It is kept for this tab.</p>
    ${problem && html`<p class="problem" role="alert">${problem.message}</p>`}
    <label>Token <input name="token" type="password" required autocomplete="off" /></label> <button>Enter</button>
  </form>`;
}

render(html`<${App} />`, document.getElementById('app'));
