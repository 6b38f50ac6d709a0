import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { tellProcessUse } from './process-use.ts';
import {
  type Component,
  type LabelsOf,
  METRICS,
  type MetricName,
  type MetricSpec,
  type NamesOf,
} from './table.ts';

/** What is looked at when somebody asks, rather than counted as it happens. */
export type Look = () => Promise<void> | void;

/** Looks are not taken again within this time, in milliseconds: two scrapers cost no more than one. */
const FRESH_MS = 2000;
/** The metrics of one process: those of its components, and of the process itself. */
export class Metrics {
  readonly registry = new Registry();
  readonly #made = new Map<string, Counter | Gauge | Histogram>();
  readonly #components: readonly Component[];
  readonly #looks: Look[] = [];
  #looking: { readonly at: number; readonly done: Promise<void> } | undefined;

  constructor(components: readonly Component[]) {
    this.#components = components;
    for (const [name, spec] of Object.entries(METRICS) as [MetricName, MetricSpec][]) {
      if (components.includes(spec.component)) this.#made.set(name, this.#make(name, spec));
    }
    tellProcessUse(this.registry);
  }

  /** Whether this process has the metrics of a component. */
  has(component: Component): boolean {
    return this.#components.includes(component);
  }

  counter<Name extends NamesOf<'counter'>>(name: Name): Counter<LabelsOf<Name>> {
    return this.#get(name) as Counter<LabelsOf<Name>>;
  }

  gauge<Name extends NamesOf<'gauge'>>(name: Name): Gauge<LabelsOf<Name>> {
    return this.#get(name) as Gauge<LabelsOf<Name>>;
  }

  histogram<Name extends NamesOf<'histogram'>>(name: Name): Histogram<LabelsOf<Name>> {
    return this.#get(name) as Histogram<LabelsOf<Name>>;
  }

  /** Called before each answer to a scraper. It sees to its own failures. */
  onScrape(look: Look): void {
    this.#looks.push(look);
  }

  /** All of it in Prometheus' text format. */
  async text(): Promise<string> {
    const now = performance.now();
    if (!this.#looking || now - this.#looking.at > FRESH_MS) {
      this.#looking = { at: now, done: Promise.all(this.#looks.map((look) => look())).then(() => {}) };
    }
    await this.#looking.done;
    return this.registry.metrics();
  }

  #get(name: MetricName): unknown {
    const made = this.#made.get(name);
    if (made) return made;
    throw new Error(`${name} is of component ${METRICS[name].component}, which this process has not`);
  }

  #make(name: string, { kind, help, labels = [], buckets = [] }: MetricSpec): Counter | Gauge | Histogram {
    const common = { name, help, labelNames: [...labels], registers: [this.registry] };
    if (kind === 'counter') return new Counter(common);
    if (kind === 'gauge') return new Gauge(common);
    return new Histogram({ ...common, buckets: [...buckets] });
  }
}
