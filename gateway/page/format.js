/* Values as people read them. Pure. */

/** Milliseconds. */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A moment, ISO 8601, in the reader's own time. */
export function moment(iso) {
  if (!iso) return '–';
  const at = new Date(iso);
  const two = (value) => String(value).padStart(2, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const count = (value) => (value ?? 0).toLocaleString('en');

export const plural = (value, what) => `${count(value)} ${what}${value === 1 ? '' : 's'}`;

export function decimal(value, digits = 3) {
  if (value === null || value === undefined) return '–';
  return String(Number(value.toFixed(digits))).replace('-', '−');
}

export const bytes = (value) =>
  value < 1e6 ? `${(value / 1e3).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`;
