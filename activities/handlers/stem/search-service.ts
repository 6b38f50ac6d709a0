import { Agent, request } from 'undici';
import { z } from 'zod';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import type { Tool } from '../../tools/tool.ts';
import { MOST_RESULTS, SEARCH_SPEC } from './search.ts';

/** Bytes of an answer, and characters of each passage that the model is shown. */
const [MOST_BYTES, MOST_CHARACTERS] = [4 * 1024 ** 2, 2000];
/** Statuses of a service that may serve the same request later. */
const BUSY = [408, 425, 429];

const Document = z.looseObject({
  title: z.string().optional(),
  text: z.string().optional(),
  /** Title and text in one, the title on a line of its own. */
  contents: z.string().optional(),
});
/** What Search-R1's retriever answers, with scores (objects with a document) or without (the documents themselves). */
const Answer = z.object({
  result: z.tuple([z.array(z.union([z.object({ document: Document }), Document]))]),
});

// A connection for each: one that the service has closed meanwhile is no failure.
const agent = new Agent({ maxResponseSize: MOST_BYTES, pipelining: 0 });

/**
 * Finds passages with a service that speaks as the retriever of Search-R1 does: POST {queries, topk, return_scores}.
 * It is asked by the run worker: the sandbox has no network.
 * @throws RolloutError SearchUnreachable, HandlerFailed for an answer that is none
 */
export function searchService(url: string): Tool {
  return {
    spec: { ...SEARCH_SPEC, description: 'Find passages by words. The best come first.' },
    run: async ({ query }, { timeoutMs }) => {
      const body = JSON.stringify({ queries: [query], topk: MOST_RESULTS, return_scores: true });
      const signal = AbortSignal.timeout(timeoutMs);
      let status: number;
      let text: string;
      try {
        const headers = { 'content-type': 'application/json' };
        const answer = await request(url, { method: 'POST', headers, body, signal, dispatcher: agent });
        status = answer.statusCode;
        text = await answer.body.text();
      } catch (error) {
        if (signal.aborted) return { status: 'timeout', exitCode: null, text: 'The search took too long.' };
        throw new RolloutError('SearchUnreachable', `${url}: ${messageOf(error)}`, { cause: error });
      }
      if (status >= 500 || BUSY.includes(status)) {
        throw new RolloutError('SearchUnreachable', `${url} answered ${status}: ${text.slice(0, 300)}`);
      }
      return { status: 'ok', exitCode: 0, text: passagesIn(url, status, text) };
    },
  };
}

function passagesIn(url: string, status: number, text: string): string {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    answer = undefined; // the schema says what was expected
  }
  const { data } = Answer.safeParse(status === 200 ? answer : undefined);
  if (!data) {
    throw new RolloutError(
      'HandlerFailed',
      `${url} answered ${status}, and no results: ${text.slice(0, 300)}`,
    );
  }
  const documents = data.result[0].map((one) =>
    'document' in one ? (one.document as z.infer<typeof Document>) : one,
  );
  const passages = documents.map(({ title, text: own, contents }, index) => {
    const passage = [title, own ?? contents].filter((part) => part).join('\n');
    return `[${index + 1}] ${passage.slice(0, MOST_CHARACTERS)}`;
  });
  return passages.length === 0 ? 'Nothing found.' : passages.join('\n\n');
}
