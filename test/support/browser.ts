import { existsSync } from 'node:fs';
import { type Browser, chromium } from 'playwright-core';

const PROGRAMS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** True if a Chromium is installed; CI installs one. */
export const hasBrowser = PROGRAMS.some((file) => existsSync(file));

/** Starts a headless Chromium that talks to nobody but the pages it is given. */
export function startBrowser(): Promise<Browser> {
  const executablePath = PROGRAMS.find((file) => existsSync(file));
  if (!executablePath) throw new Error(`no Chromium found; looked for ${PROGRAMS.join(', ')}`);
  return chromium.launch({
    executablePath,
    args: [
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []), // Chromium refuses its sandbox to root
      ...['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'],
      ...['--disable-component-update', '--disable-sync'],
    ],
  });
}
