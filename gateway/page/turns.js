/* A trajectory (docs/trajectory.md) as people follow it: a prompt, then turns. Pure. */

/**
 * @returns the prompt's messages, and turns: their parts as recorded (several if a request was broken off and went on),
 * the model's message, the messages after it, and figures.
 */
export function turnsOf({ turns, messages, logprobs }) {
  const groups = [];
  for (const [index, turn] of turns.entries()) {
    const before = turns[index - 1];
    const goesOn = before?.finish === 'abort' && before.turn === turn.turn && isEmpty(before.observed);
    if (goesOn) groups.at(-1).push(turn);
    else groups.push([turn]);
  }
  // Prompts may hold worked examples: the model's own messages are the last ones.
  const said = messages
    .flatMap(({ role }, index) => (role === 'assistant' ? [index] : []))
    .slice(-groups.length || undefined);
  const first = groups.length === 0 ? messages.length : (said[0] ?? messages.length);
  return {
    prompt: messages.slice(0, first),
    turns: groups.map((parts, index) => ({
      index,
      parts,
      message: messages[said[index]] ?? null,
      after: said[index] === undefined ? [] : messages.slice(said[index] + 1, said[index + 1]),
      calls: parts.flatMap((part) => part.tool_calls),
      ...figuresOf(parts, logprobs),
    })),
  };
}

const isEmpty = ([start, end]) => start === end;

function figuresOf(parts, logprobs) {
  const sum = (of) => parts.reduce((total, part) => total + of(part), 0);
  const sampled = sum(({ sampled: [start, end] }) => end - start);
  const total = sum(({ sampled: [start, end] }) =>
    logprobs.slice(start, end).reduce((all, one) => all + one, 0),
  );
  const first = parts[0];
  return {
    sampled,
    observed: sum(({ observed: [start, end] }) => end - start),
    meanLogprob: sampled === 0 ? null : total / sampled,
    versions: [...new Set(parts.map((part) => part.policy_version))],
    finish: parts.at(-1).finish,
    startedAt: Date.parse(first.started_at),
    generateMs: sum((part) => part.generate_ms),
    toolMs: sum((part) => part.tool_calls.reduce((all, { ms }) => all + (ms ?? 0), 0)),
  };
}

/** Bars of requests to the LLM and of tool calls, in milliseconds of the clock. */
export function barsOf(turns) {
  return turns.flatMap(({ parts }) =>
    parts.flatMap((part) => {
      const start = Date.parse(part.started_at);
      const bars = [{ lane: 'llm', start, end: start + part.generate_ms }];
      for (const { ms } of part.tool_calls) {
        const { end } = bars.at(-1);
        if (ms !== null) bars.push({ lane: 'tools', start: end, end: end + ms });
      }
      return bars;
    }),
  );
}
