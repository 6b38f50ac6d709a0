import { z } from 'zod';

/*
 * The endpoint of a sandbox: an OpenAI-compatible service on a Unix socket that only this sandbox sees. The sandbox
 * host takes the calls of the agent's program and keeps each until whoever holds the sandbox has answered it: a
 * worker that dies, a deploy or a pause make a call wait, and lose none.
 */

const fence = z.int().min(1);

/** POST /v1/sandboxes/:id/endpoint: opens it, unless it is open. `model` is what its /v1/models lists. */
export const OpenEndpoint = z.object({ fence, model: z.string().min(1).max(1000) });
export type OpenEndpoint = z.infer<typeof OpenEndpoint>;

/** Where it is, as seen inside. */
export const EndpointInfo = z.object({ socketPath: z.string() });
export type EndpointInfo = z.infer<typeof EndpointInfo>;

/**
 * POST /v1/sandboxes/:id/endpoint/next {fence}: waits for the next thing to happen. A new holder hears of every call
 * that is unanswered.
 */
export const EndpointEvent = z.discriminatedUnion('event', [
  /** POST /v1/chat/completions of the program; `body` as it came. `id` stays the same when a new holder hears of it. */
  z.object({ event: z.literal('call'), id: z.string(), body: z.string() }),
  /** Its program has given the call up. */
  z.object({ event: z.literal('gone'), id: z.string() }),
]);
export type EndpointEvent = z.infer<typeof EndpointEvent>;

/** POST /v1/sandboxes/:id/endpoint/answer: the whole answer of a call. */
export const EndpointAnswer = z.object({
  fence,
  id: z.string(),
  status: z.int().min(200).max(599),
  contentType: z.enum(['application/json', 'text/event-stream']),
  body: z.string(),
});
export type EndpointAnswer = z.infer<typeof EndpointAnswer>;

/** Whether the program has taken the answer; it may have given the call up. */
export const AnswerReceipt = z.object({ delivered: z.boolean() });
