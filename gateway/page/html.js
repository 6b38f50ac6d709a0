import htm from './htm.js';
import { Component, createRef, Fragment, h, render } from './preact.js';

/** Markup as tagged templates. Whatever is put into them becomes text, never markup. */
export const html = htm.bind(h);
export { Component, createRef, Fragment, h, render };
