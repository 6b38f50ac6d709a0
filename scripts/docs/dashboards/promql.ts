import type { Target } from './model.ts';

/** Over as long a time rates are taken; scrapes are 15 s apart. */
const OVER = '5m';

/** Events a second, summed by labels. */
export function rate(selector: string, by: string): Target {
  return { expr: `sum by (${by}) (rate(${selector}[${OVER}]))`, legend: legendOf(by) };
}

/** Of a histogram: the value below which so many of a hundred stay. */
export function percentile(percent: number, name: string, by = '', filter = ''): Target {
  const labels = by === '' ? 'le' : `le, ${by}`;
  const selector = `${name}_bucket${filter === '' ? '' : `{${filter}}`}`;
  return {
    expr: `histogram_quantile(${percent / 100}, sum by (${labels}) (rate(${selector}[${OVER}])))`,
    legend: [`p${percent}`, legendOf(by)].filter((part) => part !== '').join(' '),
  };
}

/** The mean of a histogram's values. */
export function mean(name: string, by = ''): Target {
  const sum = (suffix: string) => `sum${by === '' ? '' : ` by (${by})`} (rate(${name}_${suffix}[${OVER}]))`;
  return { expr: `${sum('sum')} / ${sum('count')}`, legend: legendOf(by) || 'mean' };
}

/** One quotient of sums. */
export function share(over: string, under: string, legend: string): Target {
  return { expr: `${over} / ${under}`, legend };
}

function legendOf(by: string): string {
  return by
    .split(',')
    .map((label) => label.trim())
    .filter((label) => label !== '')
    .map((label) => `{{${label}}}`)
    .join(' ');
}
