/** One curve or number of a panel. */
export interface Target {
  /** PromQL. */
  readonly expr: string;
  /** Grafana's template of its name, e.g. `{{stage}}`. */
  readonly legend: string;
}

/** One panel; two stand side by side. */
export interface Panel {
  readonly title: string;
  /** What to do when it looks bad. */
  readonly help?: string;
  /** As Grafana calls it: s, ops, percentunit, short. */
  readonly unit: string;
  readonly targets: readonly Target[];
  /** A number in large type, without its past. */
  readonly stat?: true;
}

export interface Dashboard {
  /** Name of its file and its address in Grafana. */
  readonly uid: string;
  readonly title: string;
  readonly panels: readonly Panel[];
}

/** Height of a panel and width of the two in a row, of Grafana's grid of 24 columns. */
const HEIGHT = 8;
const WIDTH = 12;
const SOURCE = { type: 'prometheus', uid: '$source' };

/** A dashboard as Grafana imports it (its JSON model, schemaVersion 39, Grafana 11). */
export function grafanaJson({ uid, title, panels }: Dashboard): string {
  const model = {
    uid,
    title,
    tags: ['durable-rollouts'],
    schemaVersion: 39,
    editable: true,
    refresh: '10s',
    time: { from: 'now-1h', to: 'now' },
    templating: {
      list: [{ name: 'source', label: 'Prometheus', type: 'datasource', query: 'prometheus', current: {} }],
    },
    links: [{ title: 'Rollouts', type: 'dashboards', tags: ['durable-rollouts'], asDropdown: true }],
    panels: panels.map(({ title, help, unit, targets, stat }, index) => ({
      id: index + 1,
      title,
      ...(help === undefined ? {} : { description: help }),
      type: stat ? 'stat' : 'timeseries',
      datasource: SOURCE,
      gridPos: {
        ...{ x: (index % 2) * WIDTH, y: Math.floor(index / 2) * HEIGHT },
        ...{ w: WIDTH, h: HEIGHT },
      },
      fieldConfig: { defaults: { unit, min: 0 }, overrides: [] },
      options: stat
        ? { textMode: 'value_and_name', reduceOptions: { calcs: ['lastNotNull'] } }
        : { legend: { displayMode: 'table', placement: 'right', calcs: ['lastNotNull', 'max'] } },
      targets: targets.map(({ expr, legend }, number) => ({
        ...{ refId: String.fromCharCode(65 + number), datasource: SOURCE },
        ...{ expr, legendFormat: legend },
      })),
    })),
  };
  return `${JSON.stringify(model, null, 2)}\n`;
}
