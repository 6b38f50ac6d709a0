import { isGrpcServiceError } from '@temporalio/client';

/** Status codes of gRPC that are told apart here. */
export const INVALID_ARGUMENT = 3;
export const FAILED_PRECONDITION = 9;

/** What Temporal's server, or the way to it, said, however Temporal's client has wrapped it. */
export function grpcErrorIn(error: unknown): { code: number; details: string } | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (isGrpcServiceError(cause)) return cause;
  return undefined;
}
