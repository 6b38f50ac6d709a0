import { writeFileSync } from 'node:fs';
import { bottleneck } from './dashboards/bottleneck.ts';
import { components } from './dashboards/components.ts';
import { grafanaJson } from './dashboards/model.ts';
import { configurationPage, failuresPage, metricsPage } from './reference.ts';

const docs = new URL('../../docs/', import.meta.url);
writeFileSync(new URL('failures.md', docs), failuresPage());
writeFileSync(new URL('configuration.md', docs), configurationPage());
writeFileSync(new URL('metrics.md', docs), metricsPage());

const grafana = new URL('../../monitoring/grafana/', import.meta.url);
for (const dashboard of [bottleneck, ...components]) {
  writeFileSync(new URL(`${dashboard.uid}.json`, grafana), grafanaJson(dashboard));
}
