import { defineHandler, z } from '../../activities/handlers/kit.ts';

/** Asks its model twice over the endpoint, with nothing but Python's standard library, and prints both answers. */
const PROGRAM = `
import json, os, urllib.request
messages = []
for _ in range(2):
    messages.append({'role': 'user', 'content': os.environ['QUESTION']})
    body = json.dumps({'model': 'policy', 'messages': messages}).encode()
    request = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body,
                                     {'content-type': 'application/json'})
    with urllib.request.urlopen(request) as answer:
        messages.append(json.load(answer)['choices'][0]['message'])
    print(messages[-1]['content'])
`;

/** An agent that brings its own loop. */
export default defineHandler({
  name: 'program',
  description: 'Ask twice what four and three are.',
  schema: z.object({ question: z.string() }),
  example: { question: 'What are four and three?' },
  run: async ({ task, sandbox, endpoint }) => {
    const { output } = await sandbox.shell('agent', {
      callId: 'agent',
      command: `export QUESTION='${task.question}' OPENAI_BASE_URL=${await endpoint.baseUrl()}
python3 - <<'PROGRAM'\n${PROGRAM}PROGRAM`,
      timeoutMs: 600_000,
    });
    return output.text;
  },
  evaluate: async ({ outcome }) => {
    const right = outcome.answer === 'Seven.\nSeven.\n' ? 1 : 0;
    return { total: right, parts: { right } };
  },
});
