import { writeFileSync } from 'node:fs';
import { configurationPage, failuresPage, metricsPage } from './reference.ts';

const docs = new URL('../../docs/', import.meta.url);
writeFileSync(new URL('failures.md', docs), failuresPage());
writeFileSync(new URL('configuration.md', docs), configurationPage());
writeFileSync(new URL('metrics.md', docs), metricsPage());
