import { type SettledRequest, settledDeadlines } from '../../contracts/deadlines.ts';
import { RolloutRequest, type RolloutRequestInput } from '../../contracts/request.ts';

/** A request as the stages after init are given it. */
export function settledRequest(input: RolloutRequestInput): SettledRequest {
  const request = RolloutRequest.parse(input);
  return { ...request, deadlines: settledDeadlines(request.deadlines) };
}
