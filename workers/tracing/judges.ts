import { trace } from '@opentelemetry/api';
import { JUDGE_LABEL, type LabelledServers } from '../../activities/grading/judge-model.ts';
import { wrapped } from '../metrics/wrapped.ts';

/** Servers as graders use them: each request to a judge is a span of the stage, without a word of what was said. */
export function traceJudges<S extends LabelledServers>(servers: S): S {
  const open: LabelledServers['open'] = async (name, options) => {
    const model = await servers.open(name, options);
    if (options.label !== JUDGE_LABEL) return model;
    const generate: typeof model.generate = (request, signal) =>
      trace.getTracer('durable-rollouts').startActiveSpan('judge', async (span) => {
        try {
          const sampled = await model.generate(request, signal);
          span.setAttributes({
            'server.address': sampled.server,
            'gen_ai.usage.input_tokens': request.promptIds.length,
            'gen_ai.usage.output_tokens': sampled.ids.length,
            'gen_ai.response.finish_reasons': [sampled.finish],
          });
          return sampled;
        } catch (error) {
          span.recordException(error as Error);
          throw error;
        } finally {
          span.end();
        }
      });
    return wrapped(model, { generate });
  };
  return wrapped<LabelledServers>(servers, { open }) as S;
}
