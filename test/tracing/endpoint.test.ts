import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../config/load.ts';
import { startTracing } from '../../workers/tracing/tracing.ts';

test('without a place to send them to, there are no traces', async () => {
  assert.equal(await startTracing(loadConfig({ env: {} }), 'worker'), undefined);
});

test('the standard variables of OpenTelemetry say where spans go, and the configuration before them', () => {
  const endpoint = (env: Record<string, string>, flags = {}) =>
    loadConfig({ env, flags }).derived.tracesEndpoint;
  const all = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/' };
  assert.equal(endpoint({}), null);
  assert.equal(endpoint(all), 'http://collector:4318/v1/traces');
  const traces = { ...all, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://other/t' };
  assert.equal(endpoint(traces), 'http://other/t');
  assert.equal(endpoint({ ...all, OTEL_SDK_DISABLED: 'true' }), null);
  assert.equal(endpoint({ ...all, OTEL_TRACES_EXPORTER: 'none' }), null);
  assert.equal(endpoint(all, { traces: { endpoint: 'http://mine/v1/traces' } }), 'http://mine/v1/traces');
});
