import { z } from 'zod';
import { messageOf } from '../../contracts/failures.ts';
import type { ToolSpec } from '../../contracts/tools.ts';
import { isDeep } from '../agent/parsers/call.ts';
import { Refused } from './refused.ts';

/*
 * What OpenAI's clients send to /v1/chat/completions, as its reference has it (2026). What would change the tokens and
 * cannot be done in token form is refused by name; what changes nothing here (`user`, `metadata`, `store`, …) is let
 * pass. Temperature, top-p and seed are the rollout's, not the program's.
 */

const TextParts = z
  .array(z.object({ type: z.literal('text'), text: z.string() }))
  .transform((parts) => parts.map(({ text }) => text).join(''));
const Content = z.union([z.string(), TextParts, z.null()], 'a text, or parts of type "text"').optional();

const FunctionCall = z.object({ name: z.string(), arguments: z.string() });

const Message = z.object({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: Content,
  tool_calls: z.array(z.object({ function: FunctionCall })).nullish(),
});

const FunctionTool = z.object({
  type: z.literal('function'),
  function: z.object({
    name: z.string().min(1).max(200),
    description: z.string().nullish(),
    parameters: z.record(z.string(), z.unknown()).nullish(),
  }),
});

const CompletionRequest = z.object({
  model: z.string().optional(),
  messages: z.array(Message).min(1).max(4000),
  tools: z.array(FunctionTool).max(500).nullish(),
  tool_choice: z.enum(['auto', 'none'], 'only "auto" and "none": a choice cannot be forced').nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
  n: z.literal(1, 'one choice per call').nullish(),
  stop: z
    .union([z.string(), z.array(z.string())])
    .nullish()
    .refine((stop) => !stop?.length, 'stop texts would cut sampled tokens'),
  response_format: z.object({ type: z.literal('text', 'answers are free text') }).nullish(),
  logprobs: z.literal(false, 'log-probabilities are recorded, not shown').nullish(),
  logit_bias: z
    .record(z.string(), z.number())
    .nullish()
    .refine((bias) => Object.keys(bias ?? {}).length === 0, 'it would change what is sampled from'),
});

/** One message, reduced to what is rendered. */
export interface Said {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
}

/** One call as it is answered. */
export interface Asked {
  readonly said: readonly Said[];
  /** As the model is told of them. */
  readonly tools: readonly ToolSpec[];
  readonly stream: boolean;
  readonly streamUsage: boolean;
  readonly maxTokens: number | undefined;
}

/** Reads the body of a call. @throws Refused with what is wrong, for the program */
export function readRequest(body: string): Asked {
  let json: unknown;
  try {
    json = JSON.parse(body);
  } catch (error) {
    throw new Refused(400, 'invalid_json', `the body is no JSON: ${messageOf(error)}`);
  }
  // What writes values as text again takes a level of the stack for each.
  if (isDeep(json)) throw new Refused(400, 'invalid_value', 'the body is nested too deeply');
  const parsed = CompletionRequest.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const where = issue?.path.join('.') || 'body';
    throw new Refused(400, 'invalid_value', `${where}: ${issue?.message}`.slice(0, 1000), where);
  }
  const { messages, tools, tool_choice, stream, stream_options, ...rest } = parsed.data;
  return {
    said: messages.map(({ role, content, tool_calls }) => ({
      role: role === 'developer' ? 'system' : role,
      content: content ?? '',
      calls: role === 'assistant' ? (tool_calls ?? []).map((call) => call.function) : [],
    })),
    tools: tool_choice === 'none' ? [] : (tools ?? []).map((tool) => specOf(tool.function)),
    stream: stream === true,
    streamUsage: stream_options?.include_usage === true,
    maxTokens: rest.max_completion_tokens ?? rest.max_tokens ?? undefined,
  };
}

function specOf({ name, description, parameters }: z.infer<typeof FunctionTool>['function']): ToolSpec {
  return {
    name,
    description: description ?? '',
    parameters: parameters ?? { type: 'object', properties: {} },
  };
}

/** Types of JSON schema that say how a value is written. */
const TYPES = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'];

/**
 * What parsers may know of a program's tool: its name, and which arguments are no text. The program checks the rest
 * itself; its schema is not for this process to run (patterns that never end, references).
 */
export function forParsing({ name, parameters }: ToolSpec): ToolSpec {
  const properties = z.record(z.string(), z.unknown()).safeParse(parameters.properties).data ?? {};
  const types = Object.entries(properties).map(([key, schema]) => {
    const type = [(schema as { type?: unknown } | null)?.type]
      .flat()
      .filter((one) => TYPES.includes(String(one)));
    return [key, type.length === 0 ? {} : { type: type.map(String) }];
  });
  return { name, description: '', parameters: { type: 'object', properties: Object.fromEntries(types) } };
}
