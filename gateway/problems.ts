import { STATUS_CODES } from 'node:http';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { FastifyError, FastifyInstance } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { grpcErrorIn, INVALID_ARGUMENT } from '../client/grpc-error.ts';
import { FAILURES, RolloutError } from '../contracts/failures.ts';

/** An answer that says what is wrong (RFC 9457, `application/problem+json`). */
export const Problem = z.object({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  detail: z.string(),
  /** Fields that are wrong, as JSON pointers into the body, or names of parameters. */
  errors: z.array(z.object({ field: z.string(), detail: z.string() })).optional(),
});
export type Problem = z.infer<typeof Problem>;

/** Answers that every route which needs a token may give, by status, for its schema. */
export const PROBLEMS = {
  401: Problem,
  403: Problem,
  404: Problem,
  422: Problem,
  429: Problem,
  503: Problem,
};

/** Thrown by routes. */
export class HttpProblem extends Error {
  override readonly name = 'HttpProblem';
  readonly status: number;
  readonly errors: Problem['errors'];
  /** Seconds after which the same call may be made again. */
  readonly retryAfter: number | undefined;

  constructor(
    status: number,
    detail: string,
    errors?: Problem['errors'],
    retryAfter?: number,
    options?: ErrorOptions,
  ) {
    super(detail, options);
    this.status = status;
    this.errors = errors;
    this.retryAfter = retryAfter;
  }
}

/** Makes every error of an app an answer of this kind; what is not the caller's fault is logged whole. */
export function answerProblems(app: FastifyInstance): void {
  app.setNotFoundHandler((request, reply) => {
    reply
      .code(404)
      .type(MEDIA_TYPE)
      .send(problem(404, `there is no ${request.method} ${request.url}`));
  });
  app.setErrorHandler((error: FastifyError | HttpProblem, request, reply) => {
    const answer = problemOf(error);
    if (answer.status >= 500) request.log.error({ err: error }, 'not answered');
    const retryAfter = error instanceof HttpProblem ? error.retryAfter : undefined;
    if (retryAfter !== undefined || answer.status === 503) reply.header('Retry-After', retryAfter ?? 5);
    reply.code(answer.status).type(MEDIA_TYPE).send(answer);
  });
}

const MEDIA_TYPE = 'application/problem+json';

function problemOf(error: Error): Problem {
  if (error instanceof HttpProblem) {
    const { cause } = error;
    const type = cause instanceof RolloutError ? { type: typeOf(cause) } : {};
    return { ...problem(error.status, error.message, error.errors), ...type };
  }
  if (hasZodFastifySchemaValidationErrors(error)) {
    const errors = error.validation.map(({ instancePath, message }) => ({
      field: instancePath || error.validationContext || '',
      detail: message ?? 'not as expected',
    }));
    const said = errors.map(({ field, detail }) => `${field}: ${detail}`).join('; ');
    return problem(422, `${error.validationContext}: ${said}`, errors);
  }
  if (error instanceof WorkflowNotFoundError) return problem(404, error.message);
  if (error instanceof RolloutError) {
    const ofCaller = FAILURES[error.type].cause === 'request';
    return { ...problem(ofCaller ? 422 : 503, error.message), type: typeOf(error) };
  }
  const refused = grpcErrorIn(error);
  // Among what Temporal finds wrong is a page token that is none.
  if (refused?.code === INVALID_ARGUMENT) return problem(422, refused.details);
  if (refused) return problem(503, `Temporal does not answer: ${refused.details}`);
  const { statusCode = 500, message } = error as Partial<FastifyError> & Error;
  return problem(statusCode, statusCode < 500 ? message : 'an error of the gateway; its log has it');
}

function typeOf({ type }: RolloutError): string {
  return `urn:rollouts:failure:${type}`;
}

function problem(status: number, detail: string, errors?: Problem['errors']): Problem {
  const title = STATUS_CODES[status] ?? 'Error';
  return { type: 'about:blank', title, status, detail, ...(errors ? { errors } : {}) };
}
