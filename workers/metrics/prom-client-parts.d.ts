/** Single ones of prom-client's metrics of a process; its types name only all of them together. */
declare module 'prom-client/lib/metrics/*.js' {
  import type { DefaultMetricsCollectorConfiguration, Registry } from 'prom-client';

  const add: (
    registry: Registry,
    config?: DefaultMetricsCollectorConfiguration<'text/plain; version=0.0.4; charset=utf-8'>,
  ) => void;
  export default add;
}
