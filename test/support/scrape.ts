/** One sample of Prometheus' text format. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** What a scrape said: samples, and the names that have a type. */
export interface Scraped {
  readonly samples: readonly Sample[];
  readonly types: ReadonlyMap<string, string>;
  /** The sum over the samples of a name whose labels include these; 0 if there is none. */
  sum(name: string, labels?: Record<string, string>): number;
}

/** Reads Prometheus' text format. @throws Error naming a line that is none of it */
export function parseScrape(text: string): Scraped {
  const samples: Sample[] = [];
  const types = new Map<string, string>();
  for (const line of text.split('\n')) {
    const type = /^# TYPE (\S+) (\S+)$/.exec(line);
    if (type) {
      if (types.has(type[1] as string)) throw new Error(`declared twice: ${line}`);
      types.set(type[1] as string, type[2] as string);
    }
    if (line === '' || line.startsWith('#')) continue;
    const [, name, labels = '', value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === undefined) throw new Error(`not a sample: ${line}`);
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text]);
    samples.push({ name, labels: Object.fromEntries(pairs), value: Number(value) });
  }
  return {
    samples,
    types,
    sum: (name, wanted = {}) =>
      samples
        .filter((sample) => sample.name === name)
        .filter(({ labels }) => Object.entries(wanted).every(([key, text]) => labels[key] === text))
        .reduce((total, { value }) => total + value, 0),
  };
}

/** All that some addresses serve, as one. */
export async function scrape(urls: readonly string[]): Promise<Scraped> {
  const texts = await Promise.all(urls.map(async (url) => (await fetch(url)).text()));
  const each = texts.map(parseScrape);
  const merged = texts.map((text) => text.replace(/^#.*$/gm, '')).join('\n');
  return { ...parseScrape(merged), types: new Map(each.flatMap(({ types }) => [...types])) };
}
