import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { JUDGE_LABEL, judgeOn, type LabelledServers } from '../../activities/grading/judge-model.ts';
import { traceJudges } from '../../workers/tracing/judges.ts';
import { encode, letterPolicy } from '../support/letters.ts';

test('each request to a judge is a span, one to another model is none, and nothing that was said is in it', async () => {
  const exporter = new InMemorySpanExporter();
  new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();
  const servers = traceJudges<LabelledServers>({
    open: async () => ({ ...letterPolicy({ replies: ['right'] }), close: () => {} }),
  });
  const { signal } = new AbortController();
  const verdict = await judgeOn(servers, 'answers').ask([{ role: 'user', content: 'Is it?' }], signal);
  assert.equal(verdict, 'right');
  const policy = await servers.open('rollout', { signal, label: 'policy' });
  await policy.generate(
    { promptIds: encode('Hi[assistant]'), maxTokens: 9, temperature: 1, topP: 1 },
    signal,
  );
  const [span, ...more] = exporter.getFinishedSpans();
  assert.equal(more.length, 0);
  assert.equal(span?.name, JUDGE_LABEL);
  assert.deepEqual(span?.attributes, {
    'server.address': 'http://127.0.0.1:1',
    'gen_ai.usage.input_tokens': 'Is it?[assistant]'.length,
    'gen_ai.usage.output_tokens': 'right'.length + 1,
    'gen_ai.response.finish_reasons': ['stop'],
  });
});
