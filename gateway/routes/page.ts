import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { App } from '../gateway.ts';

const FOLDER = fileURLToPath(new URL('../page', import.meta.url));
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
};

/**
 * What the page shows is written by models and by whoever wrote the tasks. Scripts come from this folder alone, and
 * `trusted-types 'none'` leaves no way to make markup or code of a text.
 */
const HEADERS = {
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cache-Control': 'no-cache',
};

/** The rollout page: the files of the folder page/, and the two modules that they import. They hold no secret. */
export async function pageRoutes(app: App): Promise<void> {
  const files = new Map<string, string>([
    ['preact.js', fileURLToPath(import.meta.resolve('preact'))],
    ['htm.js', fileURLToPath(import.meta.resolve('htm'))],
  ]);
  for (const name of await readdir(FOLDER)) files.set(name, path.join(FOLDER, name));
  for (const [name, file] of files) {
    const type = TYPES[path.extname(name)];
    if (type === undefined) continue;
    const content = await readFile(file);
    const etag = `"${createHash('sha256').update(content).digest('hex').slice(0, 32)}"`;
    app.get(name === 'index.html' ? '/' : `/page/${name}`, { schema: { hide: true } }, (request, reply) => {
      reply.headers({ ...HEADERS, ETag: etag });
      if (request.headers['if-none-match'] === etag) return reply.code(304).send();
      return reply.type(type).send(content);
    });
  }
}
