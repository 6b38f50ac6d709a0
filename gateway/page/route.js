/*
 * Where the reader is: the part of the address after `#`, as `/rollouts/<id>?shade=mask`.
 */

/** The parts of the path, and the query. */
export function route() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return {
    path: path.split('/').map(decodeURIComponent),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** A link to a place. Empty parts of the query are left out. */
export function to(path, query = {}) {
  const given = Object.entries(query).filter(
    ([, value]) => value !== undefined && value !== '' && value !== null,
  );
  const asked = given.length > 0 ? `?${new URLSearchParams(given)}` : '';
  return `#/${path.map(encodeURIComponent).join('/')}${asked}`;
}

/** Changes the query of where the reader is, without a step in the history. */
export function requery(changes) {
  const { path, query } = route();
  history.replaceState(null, '', to(path, { ...query, ...changes }));
  dispatchEvent(new HashChangeEvent('hashchange'));
}
